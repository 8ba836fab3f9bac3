"""Metrics of how NVIDIA's driver answers; `nvml_samples.py` fills them in."""

from __future__ import annotations

from holdfast_sidecar.records.metric import NODE, counter, gauge

NVML = (
    gauge(
        "gpu_readings_stale",
        "",
        NODE,
        "1 while the driver does not answer: values of GPUs are absent, who they are is not.",
    ),
    gauge(
        "gpu_reading_duration_seconds",
        "seconds",
        NODE,
        "What the driver took for the newest reading of all GPUs.",
    ),
    gauge(
        "nvml_silent_since_timestamp_seconds",
        "seconds",
        (*NODE, "child"),
        "Since when the driver has not answered a child process that asks it (poll, events).",
    ),
    gauge(
        "nvml_stuck_children",
        "",
        (*NODE, "child"),
        "Child processes that hang in the driver and can't be killed.",
    ),
    gauge("gpu_events_watched", "", NODE, "GPUs whose events (XIDs above all) are waited for."),
    counter(
        "gpu_events_total",
        "",
        (*NODE, "event"),
        "Events that the driver told besides XIDs, or with a number that can't be one's "
        "(`unknown_xid`), since the sidecar's start.",
    ),
)
