"""Metrics of the GPUs; `gpu_samples.py` fills them in."""

from __future__ import annotations

from holdfast_sidecar.metrics.entry import GPU, NODE, counter, gauge

GPUS = (
    gauge(
        "gpu_info",
        "",
        (*GPU, "uuid", "model", "pci", "driver"),
        "A GPU; always 1, its identity stands in the labels.",
    ),
    gauge("node_gpus", "", NODE, "GPUs that NVML lists; absent without a driver."),
    gauge("gpu_busy_ratio", "ratio", GPU, "Share of time a kernel ran; 1 in a spinning hang, too."),
    gauge("gpu_memory_size_bytes", "bytes", GPU, "Memory."),
    gauge("gpu_memory_used_bytes", "bytes", GPU, "Memory in use."),
    gauge("gpu_temperature_celsius", "celsius", GPU, "Temperature of the GPU."),
    gauge("gpu_power_watts", "watts", GPU, "Power drawn."),
    gauge("gpu_power_limit_watts", "watts", GPU, "Enforced power limit."),
    gauge("gpu_sm_clock_hertz", "hertz", GPU, "Clock of the multiprocessors."),
    gauge("gpu_processes", "", GPU, "Processes that compute on it."),
    counter("gpu_ecc_errors_total", "", (*GPU, "error"), "ECC errors since the driver was loaded."),
)
