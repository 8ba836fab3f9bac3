"""A driver that does not answer is told, with what it was asked."""

from __future__ import annotations

from tests.unit.ranks.scene import moment

from holdfast_sidecar.components.gpu.checks import NEXT, find_wedged_nvml
from holdfast_sidecar.components.gpu.readings import GpuReading, NvmlSilence
from holdfast_sidecar.components.machine import MachineReading
from holdfast_sidecar.components.xid.events import GpuEvents
from holdfast_sidecar.records.findings import Kind

POLLS = NvmlSilence("poll", 97.0, "nvmlDeviceGetFieldValues of GPU 3", stuck=1)


def test_a_driver_that_answers_or_is_not_there_is_nothing_to_tell() -> None:
    for machine in (
        MachineReading(),
        MachineReading(gpu=GpuReading(True), gpu_events=GpuEvents(listening_to=8)),
        MachineReading(gpu=GpuReading(False), gpu_events=GpuEvents()),
    ):
        assert list(find_wedged_nvml(machine, moment(100.0))) == []


def test_a_silent_driver_is_told_with_what_it_was_asked_and_what_hangs_in_it() -> None:
    machine = MachineReading(gpu=GpuReading(True, stale_since_s=97.0, silence=POLLS))
    (finding,) = find_wedged_nvml(machine, moment(100.0))
    assert (finding.kind, finding.what) == (Kind.NVML_WEDGED, "poll")
    assert finding.since_unix_s == moment(100.0).now_unix_s - 3.0
    assert finding.evidence == [
        "NVML has not answered for 3 s: no readings of the GPUs",
        "it was asked nvmlDeviceGetFieldValues of GPU 3",
        "processes that hang in the driver and can't be killed: 1",
        NEXT,
    ]


def test_readings_and_events_are_two_findings() -> None:
    machine = MachineReading(
        gpu=GpuReading(True, silence=POLLS),
        gpu_events=GpuEvents(silence=NvmlSilence("events", 98.0)),
    )
    found = list(find_wedged_nvml(machine, moment(100.0)))
    assert [finding.what for finding in found] == ["poll", "events"]
    assert found[1].evidence == [
        "NVML has not answered for 2 s: no events of the GPUs",
        NEXT,
    ]
    assert len({finding.key for finding in found}) == 2
