"""What is told about GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.metrics.samples import Sample, Told
from holdfast_sidecar.readings.gpu import Gpu, GpuReading, Signal


def draw_gpus(reading: GpuReading, told: Told) -> Iterator[Sample]:
    """Every GPU, and how many there are."""
    yield from told("node_gpus", len(reading.gpus))
    for gpu in reading.gpus:
        yield from _draw_gpu(gpu, reading.driver, told.about(gpu=str(gpu.index)))


def _draw_gpu(gpu: Gpu, driver: str, told: Told) -> Iterator[Sample]:
    yield from told("gpu_info", 1, uuid=gpu.uuid, model=gpu.model, pci=gpu.pci, driver=driver)
    yield from told("gpu_busy_ratio", gpu.value(Signal.BUSY))
    yield from told("gpu_memory_size_bytes", gpu.value(Signal.MEMORY_SIZE))
    yield from told("gpu_memory_used_bytes", gpu.value(Signal.MEMORY_USED))
    yield from told("gpu_temperature_celsius", gpu.value(Signal.TEMPERATURE))
    yield from told("gpu_power_watts", gpu.value(Signal.POWER))
    yield from told("gpu_power_limit_watts", gpu.value(Signal.POWER_LIMIT))
    yield from told("gpu_sm_clock_hertz", gpu.value(Signal.SM_CLOCK))
    yield from told("gpu_processes", gpu.value(Signal.PROCESSES))
    yield from told("gpu_ecc_errors_total", gpu.value(Signal.ECC_CORRECTED), error="corrected")
    yield from told("gpu_ecc_errors_total", gpu.value(Signal.ECC_UNCORRECTED), error="uncorrected")
