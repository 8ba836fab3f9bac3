"""Detectors of the node itself: host, network, presence; how long a finding stands."""

from __future__ import annotations

import dataclasses

from tests.unit.ranks.scene import moment

from holdfast_sidecar.checks import keep_onsets, newly_found, no_longer_found
from holdfast_sidecar.components.host.host import find_host_troubles
from holdfast_sidecar.components.host.readings import FilesystemSpace, HostReading, Pressure
from holdfast_sidecar.components.network.checks import find_link_troubles
from holdfast_sidecar.components.network.readings import LinkLook, LinkStory
from holdfast_sidecar.config.settings import FabricSettings
from holdfast_sidecar.ranks.checks import find_absences
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.reports import ProbeHealth

GIB = 2**30
HEALTHY = HostReading(
    cpu_s={},
    cpus=8,
    load_1m=1.0,
    memory_size_bytes=64 * GIB,
    memory_available_bytes=32 * GIB,
    swap_used_bytes=0,
    boot_unix_s=0.0,
    pressure={"memory": Pressure(10.0, 1.0, 0.02, 0.005)},
    rooms={"shm": FilesystemSpace(32 * GIB, 30 * GIB)},
)


def kinds(findings: object) -> list[Kind]:
    return [finding.kind for finding in findings]  # type: ignore[attr-defined]


def test_a_healthy_host_is_nothing_to_tell() -> None:
    assert kinds(find_host_troubles(HEALTHY, moment(1.0))) == []
    assert kinds(find_host_troubles(None, moment(1.0))) == []


def test_a_thrashing_host_and_one_without_memory_are_under_pressure() -> None:
    thrashing = dataclasses.replace(HEALTHY, pressure={"memory": Pressure(10.0, 5.0, 0.6, 0.3)})
    empty = dataclasses.replace(HEALTHY, memory_available_bytes=GIB)
    assert kinds(find_host_troubles(thrashing, moment(1.0))) == [Kind.MEMORY_PRESSURE]
    assert kinds(find_host_troubles(empty, moment(1.0))) == [Kind.MEMORY_PRESSURE]


def test_a_file_system_that_is_all_but_full_is_named_by_what_it_is_for() -> None:
    full = dataclasses.replace(HEALTHY, rooms={"checkpoint": FilesystemSpace(100 * GIB, 4 * GIB)})
    (finding,) = find_host_troubles(full, moment(1.0))
    assert finding.kind is Kind.DISK_FULL
    assert finding.evidence == ["checkpoint: 4096 MiB are left"]


def test_a_second_full_disk_link_or_probe_is_a_trouble_of_its_own() -> None:
    full = FilesystemSpace(100 * GIB, 4 * GIB)
    one = dataclasses.replace(HEALTHY, rooms={"checkpoint": full})
    both = dataclasses.replace(HEALTHY, rooms={"checkpoint": full, "state": full})
    before = list(find_host_troubles(one, moment(1.0)))
    after = list(find_host_troubles(both, moment(2.0)))
    (new,) = newly_found(after, before)
    assert new.what == "state"
    up, down = LinkLook(is_up=True), LinkLook(is_up=False)
    links = [LinkStory(name).seen(up, 0.0).seen(down, 1.0) for name in ("eth0", "eth1")]
    lost = find_link_troubles(links, FabricSettings(), moment(60.0))
    assert len({finding.key for finding in lost}) == 2
    failing = [ProbeHealth(n, False, 9, 0.1, failing_since_s=0.0) for n in ("gpu", "host")]
    absences = list(find_absences(failing, True, 100.0, moment(100.0)))
    assert len({finding.key for finding in absences}) == 2


def test_a_store_that_hiccups_is_not_away_but_one_that_stays_silent_is() -> None:
    assert kinds(find_absences((), True, 8.0, moment(10.0))) == []
    assert kinds(find_absences((), True, 6.0, moment(10.0))) == [Kind.STORE_AWAY]


def test_a_lost_launcher_is_found_at_once() -> None:
    assert kinds(find_absences((), False, 10.0, moment(10.0))) == [Kind.LAUNCHER_LOST]


def test_a_probe_is_reported_only_when_it_keeps_failing() -> None:
    failing = ProbeHealth("gpu", False, 4, 1.0, "NVML is silent", failing_since_s=10.0)
    assert kinds(find_absences([failing], True, 20.0, moment(20.0))) == []
    assert kinds(find_absences([failing], True, 26.0, moment(26.0))) == [Kind.PROBE_FAILED]


def test_the_same_trouble_seen_again_keeps_its_first_time() -> None:
    first = Finding(Kind.STALL, "a", 100.0, 0.5, [1])
    again = Finding(Kind.STALL, "a", 105.0, 0.6, [1], acts=True)
    other = Finding(Kind.STALL, "a", 105.0, 0.6, [2])
    kept = keep_onsets([again, other], [first])
    assert [(f.since_unix_s, f.acts) for f in kept] == [(100.0, True), (105.0, False)]
    assert newly_found(kept, [first]) == [kept[1]]
    assert no_longer_found([kept[1]], kept) == [kept[0]]


def test_a_gpu_is_ill_since_then_whosever_rank_it_is() -> None:
    """While an attempt ends and the next one begins it is nobody's."""
    first = Finding(Kind.GPU_FAULT, "a", 10.0, 1.0, [0], what="gpu0-recovery", gpu="GPU-0")
    nobodys = dataclasses.replace(first, since_unix_s=20.0, ranks=[])
    again = dataclasses.replace(first, since_unix_s=30.0, ranks=[4])
    other = dataclasses.replace(again, gpu="GPU-1")
    between = keep_onsets([nobodys], [first])
    kept = keep_onsets([again, other], between)
    assert [finding.since_unix_s for finding in kept] == [10.0, 30.0]
