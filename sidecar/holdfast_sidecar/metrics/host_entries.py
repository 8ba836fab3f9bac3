"""Metrics of the host; `host_samples.py` fills them in."""

from __future__ import annotations

from holdfast_sidecar.records.metric import NODE, counter, gauge

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
