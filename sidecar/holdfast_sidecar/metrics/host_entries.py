"""Metrics of the host; `host_samples.py` fills them in."""

from __future__ import annotations

from holdfast_sidecar.metrics.entry import NODE, counter, gauge

HOST = (
    counter("host_cpu_seconds_total", "seconds", (*NODE, "mode"), "CPU time of the host by mode."),
    gauge("host_cpus", "", NODE, "CPUs that this sidecar may run on."),
    gauge("host_load1", "", NODE, "Load average over one minute."),
    gauge("host_memory_size_bytes", "bytes", NODE, "Memory."),
    gauge("host_memory_available_bytes", "bytes", NODE, "Memory that can be had without swapping."),
    gauge("host_swap_used_bytes", "bytes", NODE, "Swap in use."),
    gauge("host_boot_timestamp_seconds", "seconds", NODE, "When the host was started."),
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
    counter("host_oom_kills_total", "", NODE, "Processes that the kernel killed for memory."),
    gauge("host_room_size_bytes", "bytes", (*NODE, "room"), "Size of the file system of a room."),
    gauge("host_room_available_bytes", "bytes", (*NODE, "room"), "What may still be written."),
)
