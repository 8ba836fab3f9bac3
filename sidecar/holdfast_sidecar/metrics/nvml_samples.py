"""What is told about how NVIDIA's driver answers."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.components.gpu.readings import GpuReading, NvmlSilence
from holdfast_sidecar.components.machine import MachineReading
from holdfast_sidecar.components.xid.events import GpuEvents
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.metric import Sample, Told


def draw_nvml(machine: MachineReading, moment: Moment, told: Told) -> Iterator[Sample]:
    """Nothing where there is no driver."""
    if machine.gpu is not None and (machine.gpu.is_present or machine.gpu.silence is not None):
        yield from _draw_readings(machine.gpu, moment, told)
    if machine.gpu_events is not None:
        yield from _draw_events(machine.gpu_events, moment, told)


def _draw_readings(reading: GpuReading, moment: Moment, told: Told) -> Iterator[Sample]:
    is_stale = reading.stale_since_s is not None
    yield from told("gpu_readings_stale", is_stale)
    yield from told("gpu_reading_duration_seconds", None if is_stale else reading.took_s)
    yield from _draw_child("poll", reading.silence, reading.stuck, moment, told)


def _draw_events(events: GpuEvents, moment: Moment, told: Told) -> Iterator[Sample]:
    yield from told("gpu_events_watched", events.listening_to)
    for event, count in sorted(events.counts.items()):
        yield from told("gpu_events_total", count, event=event)
    if events.listening_to is not None or events.silence is not None:
        yield from _draw_child("events", events.silence, events.stuck, moment, told)


def _draw_child(
    child: str, silence: NvmlSilence | None, stuck: int, moment: Moment, told: Told
) -> Iterator[Sample]:
    yield from told("nvml_stuck_children", stuck, child=child)
    if silence is not None:
        since_unix_s = moment.unix_s(silence.since_s)
        yield from told("nvml_silent_since_timestamp_seconds", since_unix_s, child=child)
