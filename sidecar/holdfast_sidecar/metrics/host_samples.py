"""What is told about the host."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.metrics.samples import Sample, Told
from holdfast_sidecar.readings.host import HostReading


def draw_host(host: HostReading, told: Told) -> Iterator[Sample]:
    """Load, memory, pressure, room."""
    for mode, seconds in host.cpu_s.items():
        yield from told("host_cpu_seconds_total", seconds, mode=mode)
    yield from told("host_cpus", host.cpus)
    yield from told("host_load1", host.load_1m)
    yield from told("host_memory_size_bytes", host.memory_size_bytes)
    yield from told("host_memory_available_bytes", host.memory_available_bytes)
    yield from told("host_swap_used_bytes", host.swap_used_bytes)
    yield from told("host_boot_timestamp_seconds", host.boot_unix_s)
    yield from told("host_oom_kills_total", host.oom_kills)
    for resource, pressure in host.pressure.items():
        of_resource = told.about(resource=resource)
        yield from of_resource("host_pressure_waiting_seconds_total", pressure.waiting_s)
        yield from of_resource("host_pressure_stalled_seconds_total", pressure.stalled_s)
    for purpose, room in host.rooms.items():
        yield from told("host_room_size_bytes", room.size_bytes, room=purpose)
        yield from told("host_room_available_bytes", room.available_bytes, room=purpose)
