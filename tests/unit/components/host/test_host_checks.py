"""Troubles of the host: what is one, what is only a busy machine, and what is nonsense."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.ranks.scene import moment

from holdfast_sidecar.components.host.host import find_host_troubles
from holdfast_sidecar.components.host.readings import (
    CgroupReading,
    Clock,
    CounterHistory,
    FilesystemSpace,
    HostReading,
    MemoryErrors,
    NetworkFilesystem,
    Sensor,
    Stuck,
)
from holdfast_sidecar.components.machine import KernelEvent, KernelEvents
from holdfast_sidecar.records.findings import Finding, Kind, Remedy

GIB = 2**30
HEALTHY = HostReading(
    cpu_s={},
    cpus=8,
    load_1m=90.0,
    memory_size_bytes=64 * GIB,
    memory_available_bytes=32 * GIB,
    swap_used_bytes=0,
    boot_unix_s=0.0,
)


def found(host: HostReading) -> list[Finding]:
    return list(find_host_troubles(host, moment(1.0)))


def told(host: HostReading) -> list[tuple[Kind, str]]:
    return [(finding.kind, finding.what) for finding in found(host)]


def over_time(
    host: HostReading, span_s: float, before: dict[str, Any], now: dict[str, Any]
) -> HostReading:
    """The host with one tally from then, looks like now's in between, and one from now."""
    times = [float(t) for t in range(15, int(span_s), 15)]
    between = [CounterHistory(at_s=1000.0 + t, **now) for t in times]
    earlier = (CounterHistory(at_s=1000.0, **before), *between)
    return replace(host, now=CounterHistory(at_s=1000.0 + span_s, **now), earlier=earlier)


@pytest.mark.parametrize(
    ("group", "evidence"),
    [
        (CgroupReading(100 * GIB, 98 * GIB), "2048 MiB are left below the control group's limit"),
        (CgroupReading(GIB, 2 * GIB), "0 MiB are left below"),
        (CgroupReading(memory_stalled_10s_ratio=0.4), "waited for memory 40%"),
        (CgroupReading(100 * GIB, 90 * GIB, memory_stalled_10s_ratio=0.01), None),
        (CgroupReading(None, 98 * GIB), None),
        (CgroupReading(100 * GIB, None), None),
    ],
)
def test_a_control_groups_limit_kills_as_surely_as_the_hosts(
    group: CgroupReading, evidence: str | None
) -> None:
    findings = found(replace(HEALTHY, group=group))
    assert [one.kind for one in findings] == [Kind.MEMORY_PRESSURE] * (evidence is not None)
    if evidence:
        assert evidence in findings[0].evidence[0]


def test_pressure_and_heat_that_become_worse_are_told_as_surer() -> None:
    """Then the job is saved once more (policy/precaution.py)."""

    def sure(host: HostReading) -> float:
        (finding,) = found(host)
        return finding.confidence

    def hot(margin: float) -> HostReading:
        host = replace(HEALTHY, sensors=(Sensor("coretemp", 100.0 - margin, 100.0),))
        return over_time(host, 60, {"margins": {"coretemp": 2.0}}, {"margins": {"coretemp": 2.0}})

    def left(mib: int) -> HostReading:
        return replace(HEALTHY, group=CgroupReading(100 * GIB, 100 * GIB - mib * 2**20))

    def stalled(ratio: float) -> HostReading:
        return replace(HEALTHY, group=CgroupReading(memory_stalled_10s_ratio=ratio))

    assert sure(hot(2.0)) < sure(hot(0.0))
    assert sure(left(2048)) < sure(left(1000))
    assert sure(stalled(0.4)) < sure(stalled(0.5))


def test_one_error_that_could_not_be_corrected_is_one_too_many() -> None:
    host = replace(HEALTHY, memory_errors=MemoryErrors(0, 1))
    assert told(host) == [(Kind.HOST_MEMORY_ERRORS, "uncorrected")]


@pytest.mark.parametrize(
    ("before", "now", "is_new"), [(0, 1, True), (1, 2, True), (2, 2, False), (None, 2, False)]
)
def test_an_error_that_came_up_lately_may_have_ended_ranks_and_one_of_last_week_has_not(
    before: int | None, now: int, is_new: bool
) -> None:
    host = replace(HEALTHY, memory_errors=MemoryErrors(0, now))
    host = over_time(host, 300, {"uncorrected": before}, {"uncorrected": now})
    told = {one.what: one.remedy for one in found(host)}
    new = {f"uncorrected-{now}": Remedy.REPLACE} if is_new else {}
    assert told == {"uncorrected": Remedy.NONE} | new
    assert not any(one.acts for one in found(host)), "who has not read it computes on"


def test_of_an_error_of_an_hour_ago_nothing_is_said_to_be_new() -> None:
    host = replace(HEALTHY, memory_errors=MemoryErrors(0, 1))
    assert told(over_time(host, 3600, {"uncorrected": 0}, {"uncorrected": 1})) == [
        (Kind.HOST_MEMORY_ERRORS, "uncorrected")
    ]


@pytest.mark.parametrize(
    ("before", "now", "is_storm"),
    [(50, 150, True), (50, 149, False), (5000, 5010, False), (500, 3, False), (None, 900, False)],
)
def test_corrected_errors_are_a_trouble_once_they_come_in_a_storm(
    before: int | None, now: int, is_storm: bool
) -> None:
    host = replace(HEALTHY, memory_errors=MemoryErrors(now, 0))
    host = over_time(host, 3600, {"corrected": before}, {"corrected": now})
    assert told(host) == [(Kind.HOST_MEMORY_ERRORS, "corrected")] * is_storm
    assert told(replace(HEALTHY, memory_errors=MemoryErrors(now, 0))) == [], (
        "seen for the first time"
    )


@pytest.mark.parametrize(
    ("room", "evidence"),
    [
        (FilesystemSpace(100 * GIB, 4 * GIB), "checkpoint: 4096 MiB are left"),
        (FilesystemSpace(100_000 * GIB, 70 * GIB), None),
        (FilesystemSpace(100_000 * GIB, 60 * GIB), "checkpoint: 61440 MiB are left"),
        (FilesystemSpace(100 * GIB, 50 * GIB, 1000, 29), "checkpoint: 29 inodes of 1000 are left"),
        (FilesystemSpace(100 * GIB, 50 * GIB, 1000, 31), None),
        (FilesystemSpace(0, 0, None, None), None),
    ],
)
def test_a_file_system_without_bytes_or_inodes_is_full(
    room: FilesystemSpace, evidence: str | None
) -> None:
    findings = found(replace(HEALTHY, rooms={"checkpoint": room}))
    assert [one.evidence[0] for one in findings] == ([evidence] if evidence else [])


def test_a_full_file_system_is_told_once_as_the_checkpoints_where_it_is_theirs_too() -> None:
    full = FilesystemSpace(100 * GIB, GIB, device=7)
    rooms = {"state": full, "checkpoint": full, "shm": replace(full, device=8)}
    assert told(replace(HEALTHY, rooms=rooms)) == [
        (Kind.DISK_FULL, "checkpoint"),
        (Kind.DISK_FULL, "shm"),
    ]


@pytest.mark.parametrize(
    ("purpose", "left", "before", "span_s", "evidence"),
    [
        ("checkpoint", 15, 35, 1800, "checkpoint: full in 22 min at the rate of late"),
        ("checkpoint", 10, 15, 600, "checkpoint: full in 20 min at the rate of late"),
        ("checkpoint", 15, 16, 1800, None),
        ("checkpoint", 50, 90, 1800, None),
        ("checkpoint", 15, 10, 1800, None),
        ("checkpoint", 10, 90, 300, None),
        ("shm", 10, 90, 1800, None),
    ],
)
def test_a_file_system_that_fills_is_told_of_before_it_is_full(
    purpose: str, left: int, before: int, span_s: float, evidence: str | None
) -> None:
    host = replace(HEALTHY, rooms={purpose: FilesystemSpace(100 * GIB, left * GIB)})
    host = over_time(
        host,
        span_s,
        {"available": {purpose: before * GIB}},
        {"available": {purpose: left * GIB}},
    )
    assert [one.evidence[0] for one in found(host)] == ([evidence] if evidence else [])


def test_a_quota_that_is_used_up_in_a_quarter_of_its_periods_throttles() -> None:
    host = replace(HEALTHY, group=CgroupReading(cpu_limit=2.0))

    def throttled(periods: int, of_them: int, was: int = 10) -> list[tuple[Kind, str]]:
        before = {"periods": was, "throttled_periods": was}
        now = {"periods": was + periods, "throttled_periods": was + of_them}
        return told(over_time(host, 60, before, now))

    assert throttled(600, 150) == [(Kind.CPU_THROTTLED, "")]
    assert throttled(600, 149) == []
    assert throttled(99, 99) == [], "it hardly ran"
    assert throttled(-600, -600, was=1000) == [], "another group"
    assert told(over_time(host, 60, {}, {"periods": 600, "throttled_periods": 600})) == []


def test_a_clock_without_a_source_is_a_trouble_only_once_it_had_one() -> None:
    off = replace(HEALTHY, clock=Clock(False, 0.0, 16.0))
    assert told(over_time(off, 60, {"was_synchronised": False}, {"was_synchronised": False})) == []
    lost = over_time(off, 60, {"was_synchronised": True}, {"was_synchronised": False})
    assert told(lost) == [(Kind.CLOCK_OFF, "source")]


def test_a_clock_far_from_its_source_or_set_by_somebody_is_off() -> None:
    far = replace(HEALTHY, clock=Clock(True, -0.06, 0.1))
    assert told(far) == [(Kind.CLOCK_OFF, "offset")]
    assert "-60 ms" in found(far)[0].evidence[0]
    near = replace(HEALTHY, clock=Clock(True, 0.02, 0.1))
    assert told(near) == []
    jumped = over_time(near, 60, {"clock_apart_s": 100.0}, {"clock_apart_s": 97.0})
    assert told(jumped) == [(Kind.CLOCK_OFF, "jump")]
    assert "-3.0 s" in found(jumped)[0].evidence[0]
    slewed = over_time(near, 60, {"clock_apart_s": 100.0}, {"clock_apart_s": 100.03})
    assert told(slewed) == []


def test_a_jump_of_the_clock_is_forgotten_after_a_while() -> None:
    near = replace(HEALTHY, clock=Clock(True, 0.02, 0.1))
    assert told(over_time(near, 1200, {"clock_apart_s": 100.0}, {"clock_apart_s": 97.0})) == []


@pytest.mark.parametrize(
    ("before", "now", "is_hot"), [(2.0, 2.0, True), (2.0, 4.0, False), (9.0, 2.0, False)]
)
def test_a_part_that_stays_hot_for_a_minute_is_hot_and_a_burst_is_not(
    before: float, now: float, is_hot: bool
) -> None:
    host = replace(HEALTHY, sensors=(Sensor("coretemp", 100.0 - now, 100.0),))
    host = over_time(host, 60, {"margins": {"coretemp": before}}, {"margins": {"coretemp": now}})
    assert told(host) == [(Kind.HOST_HOT, "coretemp")] * is_hot
    assert told(replace(host, earlier=())) == [], "seen for the first time"


def test_storage_that_does_not_answer_is_stalled_however_that_shows() -> None:
    assert told(replace(HEALTHY, silent_rooms={"state": 14.0, "checkpoint": 15.0})) == [
        (Kind.STORAGE_STALLED, "checkpoint")
    ]
    nfs = NetworkFilesystem("rank 0", "nfs4", "/data", silent_s=30.0)
    both = replace(HEALTHY, storage=(nfs,), silent_rooms={"rank 0": 20.0})
    (finding,) = found(both)
    assert finding.evidence == ["rank 0: nfs4 at /data has not answered for 30 s"]
    lustre = NetworkFilesystem("checkpoint", "lustre", "/fast", state="fast-OST0001: DISCONN")
    assert told(replace(HEALTHY, storage=(lustre,))) == [(Kind.STORAGE_STALLED, "checkpoint")]
    assert told(replace(HEALTHY, storage=(replace(nfs, silent_s=10.0),))) == []


def test_a_rank_in_one_wait_for_a_minute_is_hung_and_named() -> None:
    stuck = Stuck(3, 77, 61.0, "nfs_wait_bit_killable")
    (finding,) = found(replace(HEALTHY, stuck=(stuck, Stuck(4, 78, 30.0))))
    assert (finding.kind, finding.ranks) == (Kind.HUNG_TASK, [3])
    assert "in nfs_wait_bit_killable for 61 s" in finding.evidence[0]


@pytest.mark.parametrize(
    ("before", "now", "is_hung"), [(4, 5, True), (4, 4, False), (4, 0, False), (None, 5, False)]
)
def test_tasks_that_the_kernel_found_hung_of_late_are_told(
    before: int | None, now: int, is_hung: bool
) -> None:
    host = replace(HEALTHY, hung_tasks=now)
    host = over_time(host, 60, {"hung_tasks": before}, {"hung_tasks": now})
    assert told(host) == [(Kind.HUNG_TASK, "")] * is_hung


def test_the_kernels_log_names_the_task_that_hangs_until_it_is_long_ago() -> None:
    text = "INFO: task python:4711 blocked for more than 122 seconds."

    def logged(ago_s: float) -> KernelEvents:
        event = KernelEvent("hung_task", "", text, moment(1.0).now_unix_s - ago_s)
        return KernelEvents(newest={("hung_task", ""): event})

    (finding,) = find_host_troubles(HEALTHY, moment(1.0), logged(10.0))
    assert (finding.kind, finding.evidence) == (Kind.HUNG_TASK, [text])
    assert list(find_host_troubles(HEALTHY, moment(1.0), logged(601.0))) == []
    assert list(find_host_troubles(HEALTHY, moment(1.0), KernelEvents())) == []
