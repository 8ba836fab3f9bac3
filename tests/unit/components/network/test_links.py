"""Links that are lost, that flap, that slow down; errors that grow. Times are seconds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from testing.fake_node import ACTIVE, DOWN, FakeSysfs, build_fabric
from tests.unit.ranks.scene import moment

from holdfast_sidecar.checks import judge_fabric
from holdfast_sidecar.components.machine import MachineReading
from holdfast_sidecar.components.network.ethernet import NetworkProbe
from holdfast_sidecar.components.network.pcie import PciProbe
from holdfast_sidecar.components.network.rdma import FabricProbe
from holdfast_sidecar.components.network.readings import LinkLook, LinkStory
from holdfast_sidecar.config.settings import FabricSettings
from holdfast_sidecar.records.findings import Finding, Kind, Remedy


class Node:
    """A node with a tree of its own, looked at when a test says so."""

    def __init__(self, root: Path, **settings: float) -> None:
        self.sysfs: FakeSysfs = build_fabric(root, ports=4)
        self.settings = replace(FabricSettings(drop_s=30.0), **settings)  # type: ignore[arg-type]
        self.fabric = FabricProbe(self.sysfs.sys / "class/infiniband")
        self.network = NetworkProbe(self.sysfs.sys / "class/net", lambda name: {})
        self.pci = PciProbe(self.sysfs.sys / "bus/pci/devices")

    def find(self, now_s: float) -> list[Finding]:
        machine = MachineReading(
            fabric=self.fabric.read(now_s),
            network=self.network.read(now_s),
            pci=self.pci.read(now_s),
        )
        return judge_fabric(machine, self.settings, moment(now_s))

    def kinds(self, now_s: float) -> list[tuple[Kind, str]]:
        return [(finding.kind, finding.what) for finding in self.find(now_s)]


def test_a_link_that_stays_up_stays_as_it_is() -> None:
    look = LinkLook(is_up=True, downs=3, rate_bytes_per_s=50e9, kind="board")
    story = LinkStory("mlx5_0/1").seen(look, 0.0)
    assert story.seen(look, 1.0) is story
    fallen = story.seen(replace(look, is_up=False), 2.0)
    assert fallen.seen(look, 3.0).flaps_s == (3.0,)


def test_a_rate_that_changed_while_the_link_was_silent_is_heeded_after() -> None:
    look = LinkLook(is_up=True, downs=3, rate_bytes_per_s=50e9, kind="board")
    slow = replace(look, rate_bytes_per_s=25e9)
    story = LinkStory("mlx5_0/1").seen(look, 0.0).seen(replace(slow, is_up=None), 1.0)
    assert (story.seen(slow, 2.0).rate, story.seen(slow, 2.0).rate_since_s) == (25e9, 2.0)


def test_a_healthy_fabric_is_nothing_to_tell(tmp_path: Path) -> None:
    node = Node(tmp_path)
    assert [node.find(now_s) for now_s in (0.0, 60.0, 3600.0)] == [[], [], []]


def test_a_link_that_stays_away_is_lost_once_the_window_is_over(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.find(0.0)
    node.sysfs.set_state("mlx5_2", DOWN)
    assert node.find(10.0) == []
    assert node.find(39.0) == []
    (finding,) = node.find(40.0)
    assert (finding.kind, finding.what) == (Kind.LINK_DOWN, "mlx5_2/1")
    assert finding.remedy is Remedy.REPLACE
    assert not finding.acts
    assert finding.evidence == [
        "mlx5_2/1 has had no link for 30 s, after it had one",
        "look at its cable, its transceiver and the switch's port",
    ]


def test_a_link_that_comes_back_within_the_window_has_flapped_and_is_no_fault(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path)
    node.find(0.0)
    node.sysfs.set_state("mlx5_2", DOWN)
    assert node.find(10.0) == []
    node.sysfs.set_state("mlx5_2", ACTIVE)
    (finding,) = node.find(35.0)
    assert (finding.kind, finding.remedy) == (Kind.LINK_FLAPPING, Remedy.NONE)
    assert finding.confidence == 0.5
    assert node.find(336.0) == []


def test_a_link_that_flaps_again_and_again_is_told_for_half_a_day(tmp_path: Path) -> None:
    node = Node(tmp_path)
    for flap in range(3):
        node.find(flap * 1000.0)
        node.sysfs.set_state("mlx5_2", DOWN)
        node.find(flap * 1000.0 + 10)
        node.sysfs.set_state("mlx5_2", ACTIVE)
    (finding,) = node.find(2020.0)
    assert finding.confidence == 0.9
    assert finding.evidence[0].endswith("3 times in 12 hours")
    assert node.kinds(10_000.0) == [(Kind.LINK_FLAPPING, "mlx5_2/1")]
    assert node.find(60_000.0) == []


def test_a_port_that_was_never_up_is_a_spare_one(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.sysfs.set_state("mlx5_3", DOWN)
    node.sysfs.set_carrier("eth0", has_carrier=False)
    assert [node.find(now_s) for now_s in (0.0, 1000.0)] == [[], []]


def test_fewer_ports_than_settings_expect_are_told_though_they_were_never_up(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path, ports=4)
    node.sysfs.set_state("mlx5_3", DOWN)
    assert node.find(0.0) == []  # it may be coming up just now
    (finding,) = node.find(31.0)
    assert (finding.kind, finding.what) == (Kind.LINK_DOWN, "ports")


def test_a_device_that_is_gone_is_lost_like_a_link(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.find(0.0)
    device = node.sysfs.port("mlx5_0").parent.parent
    device.rename(tmp_path / "gone")
    node.find(10.0)
    (finding,) = node.find(41.0)
    assert "gone from the machine" in finding.evidence[0]


def test_an_interface_without_carrier_is_lost_and_one_that_is_switched_off_is_not(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path)
    node.find(0.0)
    (node.sysfs.sys / "class/net/eth0/carrier").unlink()  # EINVAL while switched off
    assert node.find(100.0) == []
    (node.sysfs.sys / "class/net/eth0/carrier").write_text("0\n")
    assert node.find(200.0) == []
    assert node.kinds(230.0) == [(Kind.LINK_DOWN, "eth0")]


def test_a_counter_of_losses_that_goes_back_is_no_flap() -> None:
    story = LinkStory("eth0").seen(LinkLook(is_up=True, downs=9), 0.0)
    assert story.seen(LinkLook(is_up=True, downs=0), 1.0).flaps_s == ()
    assert story.seen(LinkLook(is_up=True, downs=None), 1.0).flaps_s == ()
    assert story.seen(LinkLook(is_up=True, downs=10), 1.0).flaps_s == (1.0,)


def test_a_link_that_was_trained_to_less_than_before_is_degraded(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.find(0.0)
    node.sysfs.set_rate("mlx5_1", "200 Gb/sec (4X HDR)")
    assert node.find(10.0) == []  # it may be climbing
    (finding,) = node.find(41.0)
    assert (finding.kind, finding.what) == (Kind.LINK_DEGRADED, "mlx5_1/1")
    assert finding.evidence == ["mlx5_1/1 runs at 200 Gb/s where it did before: 400 Gb/s"]


def test_a_link_slower_than_others_of_its_kind_is_degraded_from_the_start(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.sysfs.set_rate("mlx5_1", "200 Gb/sec (4X HDR)")
    node.sysfs.add_port("mlx5_9", "0000:e0:00.0", "100 Gb/sec (4X EDR)", board="MT_0000000010")
    node.find(0.0)
    (finding,) = node.find(31.0)
    assert finding.evidence == ["mlx5_1/1 runs at 200 Gb/s, others of its kind do 400 Gb/s"]


def test_a_rate_below_what_settings_expect_is_degraded(tmp_path: Path) -> None:
    node = Node(tmp_path, rate_bytes_per_s=100e9)
    node.find(0.0)
    assert len(node.find(31.0)) == 4  # the interface is no RDMA port


def test_symbol_errors_that_grow_for_minutes_are_degradation(tmp_path: Path) -> None:
    node = Node(tmp_path)
    for minute in range(5):
        node.sysfs.count("mlx5_1", symbol_error=30)
        found = node.kinds(minute * 61.0)
    assert found == [(Kind.LINK_DEGRADED, "errors of mlx5_1/1")]


def test_one_burst_of_errors_is_none(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.find(0.0)
    node.sysfs.count("mlx5_1", symbol_error=5000, local_ack_timeout_err=500)
    assert [node.find(now_s) for now_s in (5.0, 70.0, 140.0)] == [[], [], []]


def test_errors_that_are_counted_anew_are_none(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.sysfs.count("mlx5_1", symbol_error=60_000, link_error_recovery=200)
    node.find(0.0)
    node.sysfs.count("mlx5_1", symbol_error=-59_990, link_error_recovery=-200)
    assert [node.find(now_s) for now_s in (61.0, 122.0)] == [[], []]


def test_packets_out_of_sequence_alone_are_never_told(tmp_path: Path) -> None:
    node = Node(tmp_path)
    for minute in range(10):
        node.sysfs.count("mlx5_1", out_of_sequence=10**6, rnr_nak_retry_err=10**6)
        assert node.find(minute * 61.0) == []


def test_retraining_acknowledgement_timeouts_and_overruns_have_limits_of_their_own(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path)
    for minute in range(3):
        node.sysfs.count("mlx5_0", link_error_recovery=1)
        node.sysfs.count("mlx5_1", local_ack_timeout_err=8)
        found = node.find(minute * 61.0)
    assert {one.what for one in found} == {"errors of mlx5_0/1", "errors of mlx5_1/1"}
    node.sysfs.count("mlx5_2", excessive_buffer_overrun_errors=1)
    assert "errors of mlx5_2/1" in {what for _, what in node.kinds(200.0)}


def test_an_uncorrected_pci_error_is_told_at_once_and_for_ten_minutes(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.sysfs.set_errors("0000:18:00.0", "nonfatal", 3)
    assert node.find(0.0) == []  # from before
    node.sysfs.set_errors("0000:18:00.0", "nonfatal", 4)
    (finding,) = node.find(10.0)
    assert (finding.kind, finding.what) == (Kind.PCI_ERRORS, "0000:18:00.0")
    assert finding.evidence[0].startswith("nic 0000:18:00.0: 1 nonfatal")
    for minute in range(1, 14):
        found = node.find(10.0 + 61.0 * minute)
    assert found == []


def test_corrected_pci_errors_are_told_only_as_a_storm(tmp_path: Path) -> None:
    node = Node(tmp_path)
    found = []
    for minute in range(6):
        node.sysfs.set_errors("0000:18:00.0", "correctable", 20 * minute)
        node.sysfs.set_errors("0000:28:00.0", "correctable", 100 * minute)
        found = node.kinds(minute * 60.0)
    assert found == [(Kind.PCI_ERRORS, "0000:28:00.0")]
