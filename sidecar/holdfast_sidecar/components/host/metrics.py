"""Metrics of the host; `host_samples.py` fills them in."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.components.host.readings import CgroupReading, HostReading
from holdfast_sidecar.components.host.storage import is_stalled
from holdfast_sidecar.records.metric import NODE, Labels, Sample, counter, gauge

LOAD = (
    counter("host_cpu_seconds_total", "seconds", (*NODE, "mode"), "CPU time of the host by mode."),
    gauge("host_cpus", "", NODE, "CPUs that this sidecar may run on."),
    gauge("host_load1", "", NODE, "Load average over one minute."),
    gauge("host_foreign_cpus", "", NODE, "CPUs' worth of time that went to others than the job."),
    gauge("host_cpu_limit", "", NODE, "CPUs' worth of time that the ranks' cgroup may take."),
    counter(
        "host_cpu_throttled_seconds_total",
        "seconds",
        NODE,
        "Time in which that quota kept tasks from running, summed over CPUs.",
    ),
    counter(
        "host_pressure_waiting_seconds_total",
        "seconds",
        (*NODE, "resource"),
        "Time in which some task waited for this resource (PSI some).",
    ),
    counter(
        "host_pressure_stalled_seconds_total",
        "seconds",
        (*NODE, "resource"),
        "Time in which all tasks waited for it (PSI full).",
    ),
    counter("host_hung_tasks_total", "", NODE, "Tasks that the kernel found hung."),
    gauge("host_stuck_ranks", "", NODE, "Ranks in a wait of the kernel that no signal ends."),
)

MEMORY = (
    gauge("host_memory_size_bytes", "bytes", NODE, "Memory."),
    gauge("host_memory_available_bytes", "bytes", NODE, "Memory that can be had without swapping."),
    gauge("host_swap_used_bytes", "bytes", NODE, "Swap in use."),
    gauge("host_memory_limit_bytes", "bytes", NODE, "Memory that the ranks' cgroup may take."),
    gauge(
        "host_memory_used_bytes",
        "bytes",
        NODE,
        "What it takes, less cache that the kernel takes back at once.",
    ),
    counter("host_oom_kills_total", "", NODE, "Processes that the kernel killed for memory."),
    counter(
        "host_memory_errors_total",
        "",
        (*NODE, "error"),
        "Errors of the memory, corrected or uncorrected, that its controllers count.",
    ),
)

STORAGE = (
    gauge("host_room_size_bytes", "bytes", (*NODE, "room"), "Size of the file system of a room."),
    gauge("host_room_available_bytes", "bytes", (*NODE, "room"), "What may still be written."),
    gauge("host_room_files", "", (*NODE, "room"), "Inodes of the file system of a room."),
    gauge("host_room_files_available", "", (*NODE, "room"), "Files that may still be made."),
    gauge(
        "storage_mount_up",
        "",
        (*NODE, "room"),
        "1 while the network file system that this part of the job uses answers.",
    ),
    counter(
        "storage_mount_timeouts_total",
        "",
        (*NODE, "room"),
        "Requests to it that had to be sent again (NFS).",
    ),
)

HARDWARE = (
    gauge("host_boot_timestamp_seconds", "seconds", NODE, "When the host was started."),
    gauge("node_clock_synchronised", "", NODE, "1 while a time source keeps the clock."),
    gauge("node_clock_offset_seconds", "seconds", NODE, "How far the clock is from it."),
    gauge(
        "host_temperature_celsius",
        "celsius",
        (*NODE, "sensor"),
        "Of each kind of sensor, that which is nearest to its critical temperature.",
    ),
    gauge(
        "host_temperature_margin_celsius",
        "celsius",
        (*NODE, "sensor"),
        "What is left until that is critical.",
    ),
    counter("host_energy_joules_total", "joules", (*NODE, "part"), "Energy used by a part (RAPL)."),
)

HOST = (*LOAD, *MEMORY, *STORAGE, *HARDWARE)


# What is told about the host.


def draw_host(host: HostReading, told: Labels) -> Iterator[Sample]:
    """Load, memory, storage, the host's own parts."""
    yield from _draw_load(host, told)
    yield from _draw_memory(host, told)
    yield from _draw_storage(host, told)
    yield from _draw_hardware(host, told)


def _draw_load(host: HostReading, told: Labels) -> Iterator[Sample]:
    group = host.group or CgroupReading()
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


def _draw_memory(host: HostReading, told: Labels) -> Iterator[Sample]:
    group = host.group or CgroupReading()
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


def _draw_storage(host: HostReading, told: Labels) -> Iterator[Sample]:
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


def _draw_hardware(host: HostReading, told: Labels) -> Iterator[Sample]:
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
