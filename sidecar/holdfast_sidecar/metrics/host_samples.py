"""What is told about the host."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.detectors.mounts import is_stalled
from holdfast_sidecar.readings.host import Group, HostReading
from holdfast_sidecar.records.metric import Sample, Told


def draw_host(host: HostReading, told: Told) -> Iterator[Sample]:
    """Load, memory, storage, the host's own parts."""
    yield from _draw_load(host, told)
    yield from _draw_memory(host, told)
    yield from _draw_storage(host, told)
    yield from _draw_hardware(host, told)


def _draw_load(host: HostReading, told: Told) -> Iterator[Sample]:
    group = host.group or Group()
    for mode, seconds in host.cpu_s.items():
        yield from told("host_cpu_seconds_total", seconds, mode=mode)
    yield from told("host_cpus", host.cpus)
    yield from told("host_load1", host.load_1m)
    yield from told("host_foreign_cpus", host.foreign_cores)
    yield from told("host_cpu_limit", group.cpu_limit)
    yield from told("host_cpu_throttled_seconds_total", group.throttled_s)
    for resource, pressure in host.pressure.items():
        of_resource = told.about(resource=resource)
        yield from of_resource("host_pressure_waiting_seconds_total", pressure.waiting_s)
        yield from of_resource("host_pressure_stalled_seconds_total", pressure.stalled_s)
    yield from told("host_hung_tasks_total", host.hung_tasks)
    yield from told("host_stuck_ranks", len(host.stuck))


def _draw_memory(host: HostReading, told: Told) -> Iterator[Sample]:
    group = host.group or Group()
    yield from told("host_memory_size_bytes", host.memory_size_bytes)
    yield from told("host_memory_available_bytes", host.memory_available_bytes)
    yield from told("host_swap_used_bytes", host.swap_used_bytes)
    yield from told("host_memory_limit_bytes", group.memory_limit_bytes)
    yield from told("host_memory_used_bytes", group.memory_used_bytes)
    yield from told("host_oom_kills_total", host.oom_kills)
    if host.memory_errors is not None:
        errors = host.memory_errors
        yield from told("host_memory_errors_total", errors.corrected, error="corrected")
        yield from told("host_memory_errors_total", errors.uncorrected, error="uncorrected")


def _draw_storage(host: HostReading, told: Told) -> Iterator[Sample]:
    for purpose, room in host.rooms.items():
        of_room = told.about(room=purpose)
        yield from of_room("host_room_size_bytes", room.size_bytes)
        yield from of_room("host_room_available_bytes", room.available_bytes)
        yield from of_room("host_room_files", room.files)
        yield from of_room("host_room_files_available", room.files_available)
    for storage in host.storage:
        of_room = told.about(room=storage.purpose)
        yield from of_room("storage_mount_up", not is_stalled(storage, host.silent_rooms))
        yield from of_room("storage_mount_timeouts_total", storage.timeouts)


def _draw_hardware(host: HostReading, told: Told) -> Iterator[Sample]:
    yield from told("host_boot_timestamp_seconds", host.boot_unix_s)
    if host.clock is not None:
        yield from told("node_clock_synchronised", host.clock.is_synchronised)
        if host.clock.is_synchronised:
            yield from told("node_clock_offset_seconds", host.clock.offset_s)
    for sensor in host.sensors:
        yield from told("host_temperature_celsius", sensor.temperature, sensor=sensor.name)
        yield from told("host_temperature_margin_celsius", sensor.margin, sensor=sensor.name)
    for part, joules in host.energy_j.items():
        yield from told("host_energy_joules_total", joules, part=part)
