from __future__ import annotations

import fcntl
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.ranks.scene import history, look

from holdfast_sidecar.components.gpu.readings import Gpu, GpuReading, GpuUser, Signal
from holdfast_sidecar.components.xid import component
from holdfast_sidecar.components.xid.checks import MOST_NUMBERS, XidReading, find_gpu_faults
from holdfast_sidecar.components.xid.component import Around, XidAttention, look_around
from holdfast_sidecar.components.xid.engine import Judgement, judge
from holdfast_sidecar.components.xid.events import XidEvent
from holdfast_sidecar.components.xid.history import MOST_KEPT, History
from holdfast_sidecar.components.xid.rules import XidContext
from holdfast_sidecar.components.xid.storage import read_history
from holdfast_sidecar.linux.kmsg import KernelReading, KernelRecord
from holdfast_sidecar.records.findings import Finding, Kind, Moment, Remedy

FELL = "NVRM: Xid (PCI:0000:2a:00): 79, pid=7, name=python3, GPU has fallen off the bus."
DOUBLE_BIT = "NVRM: Xid (PCI:0000:2a:00): 48, An uncorrectable double bit error (DBE) detected"
START_S = 1_700_000_000.0


def gpus(**values: float) -> GpuReading:
    told = {Signal[name]: value for name, value in values.items()}
    return GpuReading(
        True,
        "570.86.15",
        (
            Gpu(0, "GPU-a", "H100", "0000:17:00.0", told, users=(GpuUser(1000),)),
            Gpu(1, "GPU-b", "H100", "0000:2a:00.0", told, users=(GpuUser(1001),)),
        ),
    )


class Node:
    """One node's sidecar, as far as XIDs go."""

    def __init__(self, path: Path | None = None, boot: str = "boot 1") -> None:
        self.attention = XidAttention(path, boot)
        self.ranks = {rank: history(look(1000.0, rank=rank, step=120 + rank)) for rank in (0, 1)}
        self.owners: Mapping[str, int] = {"GPU-a": 0, "GPU-b": 1}
        self.certain = frozenset({"GPU-a", "GPU-b"})
        self.guess = 0.6
        self.around: Around | None = None
        self.sequence = 0

    def tick(
        self,
        at_s: float,
        *lines: str,
        told: tuple[XidEvent, ...] = (),
        reading: GpuReading | None = None,
        **how: Any,
    ) -> XidReading:
        moment = self.moment(at_s)
        self.attention.hear(self.records(at_s, lines, **how), told)
        self.around = look_around(self.around, 0, self.ranks, True, moment)
        seen = gpus() if reading is None else reading
        sureness = {uuid: 1.0 if uuid in self.certain else self.guess for uuid in self.owners}
        self.reading = self.attention.follow(seen, self.owners, sureness, self.around)
        return self.reading

    def records(self, at_s: float, lines: tuple[str, ...], **how: Any) -> KernelReading:
        records = []
        for line in lines:
            self.sequence += 1
            at_unix_s = how.get("logged_s", at_s) + START_S
            is_backlog = how.get("is_backlog", False)
            records.append(KernelRecord(self.sequence, 3, at_s, line, at_unix_s, is_backlog))
        return KernelReading(tuple(records))

    def findings(self, at_s: float) -> list[Finding]:
        return list(find_gpu_faults(self.reading, self.ranks, self.moment(at_s)))

    @staticmethod
    def moment(at_s: float) -> Moment:
        return Moment(1000.0 + at_s, START_S + at_s, "a")


def test_an_xid_becomes_a_finding_about_the_rank_and_its_step() -> None:
    node = Node()
    node.tick(0.0)
    node.tick(1.0, FELL)
    (found,) = node.findings(1.0)
    assert (found.kind, found.ranks, found.gpu) == (Kind.GPU_FAULT, [1], "GPU-b")
    assert found.what == "xid 79 on 0000:2a:00.0"
    assert found.remedy is Remedy.REBOOT_NODE
    assert found.acts
    assert found.evidence[0] == FELL
    assert any("does not answer over PCIe" in line for line in found.evidence)
    assert any("rank 1 had done 121 steps" in line for line in found.evidence)


def test_an_event_of_nvml_alone_is_enough() -> None:
    node = Node()
    node.tick(1.0, told=(XidEvent(START_S + 1.0, "nvml", 48, "0000:17:00.0", ""),))
    (found,) = node.findings(1.0)
    assert (found.ranks, found.remedy) == ([0], Remedy.RESET_GPU)
    assert "told by NVML" in found.evidence[0]


def test_what_both_tell_is_counted_once() -> None:
    node = Node()
    both = (XidEvent(START_S + 1.2, "nvml", 79, "0000:2a:00.0", ""),)
    reading = node.tick(1.0, FELL, told=both)
    assert reading.xids["0000:2a:00.0", 79].seen == 1
    assert len(node.findings(1.0)) == 1


def test_a_gpu_that_is_listed_no_more_is_still_its_rank_s() -> None:
    node = Node()
    node.tick(0.0)
    left = GpuReading(True, "570.86.15", gpus().gpus[:1])
    node.owners = {"GPU-a": 0}
    node.tick(1.0, FELL, reading=left)
    (found,) = node.findings(1.0)
    assert (found.ranks, found.gpu, found.acts) == ([1], "GPU-b", True)


def test_a_fault_of_a_gpu_that_is_nobody_s_ends_nothing() -> None:
    node = Node()
    node.owners = {}
    node.tick(1.0, FELL)
    (found,) = node.findings(1.0)
    assert (found.ranks, found.acts, found.remedy) == ([], False, Remedy.REBOOT_NODE)


def test_without_any_gpu_of_ours_lines_of_the_host_s_are_not_told() -> None:
    node = Node()
    reading = node.tick(1.0, FELL, reading=GpuReading(False))
    assert node.findings(1.0) == []
    assert reading.xids["0000:2a:00.0", 79].seen == 1


def test_the_finding_ends_when_the_driver_takes_its_demand_back() -> None:
    node = Node()
    line = "NVRM: Xid (PCI:0000:2a:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (x)"
    node.tick(1.0, FELL, line)
    node.tick(60.0, reading=gpus(RECOVERY_ACTION=1))
    assert {found.remedy for found in node.findings(60.0)} == {Remedy.RESET_GPU}
    node.tick(400.0, reading=gpus(RECOVERY_ACTION=0))
    assert [found for found in node.findings(400.0) if found.remedy.blames_hardware] == []


def test_the_word_of_a_driver_that_hangs_is_not_taken_for_a_new_one() -> None:
    node = Node()
    node.tick(0.0, reading=gpus(RECOVERY_ACTION=0))
    stale = GpuReading(True, "570.86.15", gpus(RECOVERY_ACTION=0).gpus, stale_since_s=1000.0)
    node.tick(1.0, FELL, reading=stale)
    node.tick(9.0, reading=stale)
    (found,) = node.findings(9.0)
    assert (found.remedy, found.acts) == (Remedy.REBOOT_NODE, True)


def test_history_outlives_the_sidecar_and_the_backlog_is_not_counted_again(tmp_path: Path) -> None:
    path = tmp_path / "xids.json"
    first = Node(path)
    first.tick(0.0, FELL)
    again = Node(path)
    reading = again.tick(3600.0, FELL, is_backlog=True, logged_s=70.0)
    tally = reading.xids["0000:2a:00.0", 79]
    assert (tally.seen, tally.in_24h) == (0, 1)


def test_a_second_boot_with_the_same_trouble_asks_for_more(tmp_path: Path) -> None:
    path = tmp_path / "xids.json"
    Node(path).tick(0.0, FELL)
    after = Node(path, boot="boot 2")
    after.tick(1000.0, FELL)
    (found,) = after.findings(1000.0)
    assert found.remedy is Remedy.REPLACE
    assert any("did not last" in line for line in found.evidence)


def test_a_directory_that_can_t_be_written_costs_nothing_but_the_memory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    node = Node(tmp_path / "file" / "xids.json")
    node.tick(0.0, FELL)
    assert len(node.findings(0.0)) == 1


def test_an_old_event_of_the_backlog_is_told_and_ends_nothing() -> None:
    node = Node()
    node.tick(0.0)
    node.tick(1.0, FELL, is_backlog=True, logged_s=-5000.0)
    (found,) = node.findings(1.0)
    assert not found.acts
    assert any("before these ranks began" in line for line in found.evidence)


def test_new_ranks_are_not_ended_for_what_ended_those_before_them() -> None:
    node = Node()
    node.tick(1.0, FELL)
    (found,) = node.findings(1.0)
    assert found.acts
    later = look(1000.0, rank=1, step=0)
    claimed_ns = int((1000.0 + 1.05) * 1e9)
    identity = replace(later.identity, claimed_ns=claimed_ns)
    node.ranks = {1: history(replace(later, identity=identity))}
    node.tick(1.1)
    (found,) = node.findings(1.1)
    assert not found.acts


def test_nothing_is_judged_anew_while_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = []

    def count(history: History, scene: XidContext) -> Judgement:
        judged.append(scene.now_s - START_S)
        return judge(history, scene)

    monkeypatch.setattr(component, "judge", count)
    node = Node()
    read = replace(gpus(RECOVERY_ACTION=0), read_at_s=1000.0)
    for tick in range(8):
        node.tick(tick / 4, reading=read)
    assert judged == [0.0, 1.0]
    node.tick(1.8, FELL, reading=read)
    assert judged[2:] == [pytest.approx(1.8)]
    node.tick(1.9, reading=replace(gpus(RECOVERY_ACTION=2), read_at_s=1001.9))
    assert judged[3:] == [pytest.approx(1.9)]


def test_series_stay_few_however_many_numbers_come() -> None:
    node = Node()
    lines = [f"NVRM: Xid (PCI:0000:2a:00): {number}, x" for number in range(200, 260)]
    lines += ["NVRM: Xid (PCI:0000:2a:00): 300, x"]
    node.tick(1.0, *lines)
    reading = node.tick(100.0, lines[-1])
    assert len(reading.xids) == MOST_NUMBERS
    assert reading.xids["0000:2a:00.0", 300].seen == 2


def test_a_storm_of_days_stays_small() -> None:
    node = Node()
    for minute in range(1200):
        node.tick(70.0 * minute, "NVRM: Xid (PCI:0000:2a:00): 45, Ch 00000001")
    assert len(node.attention.history.occurrences) <= MOST_KEPT


def test_a_fatal_error_of_the_switch_is_about_all_its_gpus() -> None:
    node = Node()
    line = "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
    reading = node.tick(1.0, line)
    (found,) = node.findings(1.0)
    assert (found.ranks, found.gpu, found.acts) == ([0, 1], "", True)
    assert found.what == "sxid 20034 on 0000:05:00.0"
    assert reading.sxids[20034].seen == 1


def test_what_a_rank_s_end_causes_is_not_found_later_on_either() -> None:
    node = Node()
    node.tick(0.0)
    gone = look(1005.0, rank=1, is_gone=True)
    node.ranks[1] = history(look(1000.0, rank=1), gone)
    node.tick(5.0)
    node.tick(8.0, "NVRM: Xid (PCI:0000:17:00): 31, pid=9, MMU Fault: ENGINE GRAPHICS")
    for at_s in (8.0, 100.0, 250.0):
        node.tick(at_s)
        assert node.findings(at_s) == []
    again = XidAttention(boot="boot 1", history=node.attention.history)
    node.attention, node.around = again, None
    node.ranks = {0: node.ranks[0]}
    node.tick(260.0)
    assert node.findings(260.0) == []


def test_a_gpu_gone_at_start_is_found_in_a_record_of_several_lines() -> None:
    node = Node()
    node.tick(
        1.0,
        r"NVRM: The NVIDIA GPU 0000:2a:00.0\x0a NVRM: (PCI ID: 10de:2330) installed in this system"
        r" has\x0a NVRM: fallen off the bus and is not responding to commands.",
    )
    (found,) = node.findings(1.0)
    assert (found.gpu, found.remedy) == ("GPU-b", Remedy.REBOOT_NODE)


def test_a_reading_from_before_the_fault_says_nothing_about_it() -> None:
    node = Node()
    before = replace(gpus(RECOVERY_ACTION=0), read_at_s=1000.5)
    node.tick(1.0, DOUBLE_BIT, reading=before)
    node.tick(3.0, reading=before)
    (found,) = node.findings(3.0)
    assert found.remedy is Remedy.RESET_GPU
    node.tick(4.0, reading=replace(before, read_at_s=1003.5))
    (found,) = node.findings(4.0)
    assert (found.remedy, found.acts) == (Remedy.RESTART_APP, False)


def test_a_driver_that_hangs_later_has_said_already_that_the_gpu_needs_nothing(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path / "xids.json")
    node.tick(0.0, reading=gpus(RECOVERY_ACTION=0))
    node.tick(1.0, DOUBLE_BIT, reading=gpus(RECOVERY_ACTION=0))
    node.tick(4.0, reading=gpus(RECOVERY_ACTION=0))
    stale = replace(gpus(), stale_since_s=1004.0)
    for at_s in (6.0, 20.0):
        node.tick(at_s, reading=stale)
        (found,) = node.findings(at_s)
        assert (found.remedy, found.acts) == (Remedy.RESTART_APP, False)
    again = Node(tmp_path / "xids.json")
    again.tick(22.0, reading=GpuReading(True, "570.86.15", gpus().gpus))
    (found,) = again.findings(22.0)
    assert (found.remedy, found.acts) == (Remedy.RESTART_APP, False)


def test_no_rank_is_ended_for_a_gpu_that_is_only_guessed_to_be_its_own() -> None:
    node = Node()
    node.certain = frozenset({"GPU-a"})
    node.tick(1.0, FELL)
    (found,) = node.findings(1.0)
    assert (found.ranks, found.acts, found.remedy) == ([1], False, Remedy.REBOOT_NODE)
    assert any("not certain" in line for line in found.evidence)


def test_a_gpu_that_was_seen_to_be_a_rank_s_is_certainly_so_when_it_is_listed_no_more() -> None:
    node = Node()
    node.tick(0.0)
    node.certain = frozenset({"GPU-a"})
    node.owners = {"GPU-a": 0}
    node.tick(1.0, FELL, reading=GpuReading(True, "570.86.15", gpus().gpus[:1]))
    (found,) = node.findings(1.0)
    assert found.acts


MMU_FAULT = "NVRM: Xid (PCI:0000:2a:00): 31, pid=9, MMU Fault: ENGINE GRAPHICS GPC6 faulted"
GSP_SILENT = "NVRM: Xid (PCI:0000:2a:00): 119, pid=9, Timeout after 6s of waiting for RPC response"


@pytest.mark.parametrize(
    ("line", "remedy"), [(MMU_FAULT, Remedy.RESTART_APP), (GSP_SILENT, Remedy.RESET_GPU)]
)
def test_what_is_old_is_not_the_cause_of_what_the_driver_asks_for_now(
    line: str, remedy: Remedy
) -> None:
    node = Node()
    first = look(1000.0, rank=1)
    identity = replace(first.identity, claimed_ns=int(1000.0 * 1e9))
    node.ranks = {1: history(replace(first, identity=identity))}
    node.tick(1.0, line, is_backlog=True, logged_s=-200.0, reading=gpus(RECOVERY_ACTION=0))
    for at_s in (20.0, 25.0):
        node.tick(at_s, reading=gpus(RECOVERY_ACTION=1))
        (found,) = node.findings(at_s)
        assert (found.remedy, found.acts) == (remedy, False)


def test_a_fault_of_the_program_is_not_what_the_driver_speaks_of_minutes_later() -> None:
    node = Node()
    node.tick(1.0, MMU_FAULT, reading=gpus(RECOVERY_ACTION=0))
    node.tick(150.0, reading=gpus(RECOVERY_ACTION=2))
    (found,) = node.findings(150.0)
    assert (found.remedy, found.acts) == (Remedy.RESTART_APP, False)


def test_what_the_driver_asks_for_at_once_stays_about_the_same_fault() -> None:
    node = Node()
    node.tick(1.0, MMU_FAULT, reading=gpus(RECOVERY_ACTION=0))
    for at_s, action in ((2.5, 1), (60.0, 1), (150.0, 2), (200.0, 2)):
        node.tick(at_s, reading=gpus(RECOVERY_ACTION=action))
        (found,) = node.findings(at_s)
        assert (found.remedy.blames_hardware, found.acts) == (True, True)


SX_FATAL = "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"


def other_board(name: str) -> GpuReading:
    mine = tuple(replace(gpu, uuid=f"{gpu.uuid} of {name}") for gpu in gpus().gpus)
    return GpuReading(True, "570.86.15", mine)


@pytest.mark.parametrize("line", [FELL, DOUBLE_BIT, SX_FATAL])
def test_what_happened_to_another_board_at_the_same_address_does_not_count(
    tmp_path: Path, line: str
) -> None:
    path = tmp_path / "xids.json"
    Node(path).tick(0.0, line)
    after = Node(path, boot="boot 2")
    after.tick(1000.0, line, reading=other_board("b"))
    (found,) = after.findings(1000.0)
    assert found.remedy is (Remedy.REBOOT_NODE if line is FELL else Remedy.RESET_GPU)
    assert not any("24 h" in line for line in found.evidence)


def test_sidecars_that_share_a_directory_lose_nothing_of_each_other(tmp_path: Path) -> None:
    path = tmp_path / "xids.json"
    first, second = Node(path), Node(path)
    first.tick(0.0, FELL)
    second.sequence = first.sequence  # one machine has one log
    second.tick(1.0, DOUBLE_BIT, reading=other_board("b"))
    again, there = Node(path), Node(path)
    again.tick(60.0)
    there.tick(60.0, reading=other_board("b"))
    assert [one.what for one in again.findings(60.0)] == ["xid 79 on 0000:2a:00.0"]
    assert [one.what for one in there.findings(60.0)] == ["xid 48 on 0000:2a:00.0"]


def test_what_can_t_be_written_while_another_writes_is_written_after(tmp_path: Path) -> None:
    path = tmp_path / "xids.json"
    node = Node(path)
    with path.with_suffix(".lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        node.tick(0.0, FELL)
    node.tick(3.0)
    assert [one.number for one in read_history(path, node.attention.boot).occurrences] == [79]


def test_a_switch_that_fails_again_after_a_reboot_asks_for_more(tmp_path: Path) -> None:
    path = tmp_path / "xids.json"
    Node(path).tick(0.0, SX_FATAL)
    after = Node(path, boot="boot 2")
    after.tick(1000.0, SX_FATAL)
    (found,) = after.findings(1000.0)
    assert found.remedy is Remedy.REBOOT_NODE


def test_a_gpu_that_this_node_does_not_have_is_not_told_of() -> None:
    node = Node()
    node.tick(0.0)
    node.tick(1.0, FELL.replace(":2a:", ":99:"))
    assert node.findings(1.0) == []


def test_a_gpu_that_was_never_listed_may_be_the_one_that_is_missing() -> None:
    node = Node()
    node.tick(1.0, FELL.replace(":2a:", ":99:"), reading=replace(gpus(), expected=3))
    (found,) = node.findings(1.0)
    assert (found.gpu, found.ranks, found.acts) == ("", [], False)
    assert any("on a GPU that the driver does not list" in line for line in found.evidence)


def steps_told(node: Node, at_s: float) -> list[str]:
    return [line for one in node.findings(at_s) for line in one.evidence if "steps" in line]


def test_the_step_at_the_fault_is_told_however_far_the_rank_gets_after_it() -> None:
    node = Node()
    node.tick(1.0, FELL)
    node.ranks[1] = history(look(1030.0, rank=1, step=400))
    node.tick(30.0)
    assert steps_told(node, 30.0) == ["rank 1 had done 121 steps"]


def test_no_step_is_told_of_ranks_that_began_after_the_fault() -> None:
    node = Node()
    node.tick(1.0, FELL, is_backlog=True, logged_s=-5000.0)
    assert len(node.findings(1.0)) == 1
    assert steps_told(node, 1.0) == []


@pytest.mark.parametrize(
    ("number", "right", "wrong"),
    [
        (14, "not in this version's table", "newer"),
        (43, "the program's log says why", "dead"),
        (79, "remedy: reboot_node", "newer drivers"),
    ],
)
def test_nothing_is_said_of_a_number_that_is_not_known_to_be_so(
    number: int, right: str, wrong: str
) -> None:
    node = Node()
    node.tick(1.0, f"NVRM: Xid (PCI:0000:2a:00): {number}, pid=9, name=python3")
    (found,) = node.findings(1.0)
    said = " ".join(found.evidence)
    assert right in said
    assert wrong not in said


TIMEOUT = "NVRM: Xid (PCI:0000:2a:00): 119, pid=7, name=python3, Timeout waiting for RPC from GSP!"


def old_driver(energy: float) -> GpuReading:
    """One that has no recovery action."""
    return replace(gpus(ENERGY=energy), driver="550.54.15")


def test_a_driver_that_was_loaded_anew_has_reset_its_gpus() -> None:
    node = Node()
    node.tick(0.0, reading=old_driver(9e6))
    node.tick(1.0, TIMEOUT, reading=old_driver(9e6))
    node.tick(5.0, reading=old_driver(9.001e6))
    node.tick(99.0, reading=old_driver(9.1e6))
    assert [one.remedy for one in node.findings(99.0)] == [Remedy.RESET_GPU]
    node.tick(200.0, reading=old_driver(300.0))
    assert node.findings(200.0) == []
    node.tick(300.0, reading=old_driver(9e6))
    assert node.findings(300.0) == []


def test_what_comes_back_after_the_driver_was_loaded_anew_takes_more() -> None:
    node = Node()
    node.tick(1.0, TIMEOUT, reading=old_driver(9e6))
    node.tick(5.0, reading=old_driver(9e6))
    node.tick(200.0, reading=old_driver(300.0))
    node.tick(250.0, TIMEOUT, reading=old_driver(900.0))
    node.tick(255.0, reading=old_driver(950.0))
    assert [one.remedy for one in node.findings(255.0)] == [Remedy.REBOOT_NODE]
    node.tick(400.0, reading=old_driver(300.0))
    assert [one.remedy for one in node.findings(400.0)] == [Remedy.REBOOT_NODE]


@pytest.mark.parametrize("energy", [0.0, 6e6, None])
def test_a_count_that_is_merely_less_or_missing_shows_no_reset(energy: float | None) -> None:
    node = Node()
    node.tick(1.0, TIMEOUT, reading=old_driver(9e6))
    node.tick(5.0, reading=old_driver(9e6))
    without = replace(gpus(), driver="550.54.15")
    node.tick(200.0, reading=without if energy is None else old_driver(energy))
    assert [one.remedy for one in node.findings(200.0)] == [Remedy.RESET_GPU]


def test_a_reset_is_seen_by_a_sidecar_that_was_started_after_it(tmp_path: Path) -> None:
    node = Node(tmp_path / "xids.json")
    node.tick(1.0, TIMEOUT, reading=old_driver(9e6))
    node.tick(5.0, reading=old_driver(9e6))
    node.tick(9.0, reading=old_driver(9e6))
    later = Node(tmp_path / "xids.json")
    later.tick(100.0, reading=old_driver(300.0))
    assert later.findings(100.0) == []


def test_a_sidecar_that_starts_anew_makes_up_no_step_for_what_happened_before(
    tmp_path: Path,
) -> None:
    path = tmp_path / "xids.json"
    before = Node(path)
    before.tick(1.0, FELL)
    after = Node(path)
    after.tick(60.0)
    assert [one.what for one in after.findings(60.0)] == ["xid 79 on 0000:2a:00.0"]
    assert steps_told(after, 60.0) == []


def test_what_an_xid_is_does_not_change_with_the_remedy_that_is_enough_for_it() -> None:
    """A driver that asks for nothing after lost memory does not make it the program's fault."""
    node = Node()
    node.tick(0.0, reading=gpus(RECOVERY_ACTION=0))
    node.tick(1.0, DOUBLE_BIT, reading=gpus(RECOVERY_ACTION=0))
    node.tick(5.0, reading=gpus(RECOVERY_ACTION=0))
    (found,) = node.findings(5.0)
    assert (found.remedy, found.acts, found.to_blame) == (Remedy.RESTART_APP, False, "gpu")
    assert "to blame: gpu" in found.evidence


@pytest.mark.parametrize(
    ("number", "to_blame"), [(31, "application"), (94, "gpu"), (39, ""), (95, "gpu")]
)
def test_whose_an_xid_is_goes_with_the_finding(number: int, to_blame: str) -> None:
    node = Node()
    node.tick(1.0, f"NVRM: Xid (PCI:0000:2a:00): {number}, pid=7, name=python3, text")
    (found,) = node.findings(1.0)
    assert found.to_blame == to_blame


def test_a_finding_is_no_surer_of_its_rank_than_it_is_whose_the_gpu_is() -> None:
    node = Node()
    node.certain, node.guess = frozenset({"GPU-a"}), 0.6
    node.tick(1.0, FELL)
    assert [found.rank_confidence for found in node.findings(1.0)] == [0.6]
    node.certain = frozenset({"GPU-b"})
    node.tick(2.0)
    assert [found.rank_confidence for found in node.findings(2.0)] == [1.0]


def test_only_what_came_first_is_said_to_be_followed() -> None:
    node = Node()
    line = "NVRM: Xid (PCI:0000:2a:00): {}, pid=7, name=python3, text"
    for at_s, number in enumerate((63, 94, 31, 119), start=1):
        node.tick(float(at_s), line.format(number))
    told = {found.what[:7].strip(): found.evidence for found in node.findings(4.0)}
    follow = "what follows from it is left out: xid 94"
    assert {name for name, evidence in told.items() if follow in evidence} == {"xid 63"}
    assert {"xid 31", "xid 119"} <= told.keys()
