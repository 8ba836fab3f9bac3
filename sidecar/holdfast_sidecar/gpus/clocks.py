"""How fast ranks' GPUs are clocked, against what they could be. Pure."""

from __future__ import annotations

from holdfast_sidecar.gpus.ownership import Ownership
from holdfast_sidecar.readings.gpu import Gpu, GpuReading, Signal


def clock_ratios(reading: GpuReading | None, ownership: Ownership) -> dict[int, float]:
    """rank -> of its slowest GPU; ranks of whose GPUs nothing is known now are left out."""
    if reading is None or reading.stale_since_s is not None:
        return {}
    told = {gpu.uuid: _ratio(gpu) for gpu in reading.gpus}
    found: dict[int, float] = {}
    for rank, tie in ownership.ties.items():
        ratios = [ratio for uuid in tie.gpus if (ratio := told.get(uuid)) is not None]
        if ratios:
            found[rank] = min(ratios)
    return found


def _ratio(gpu: Gpu) -> float | None:
    clock, most = gpu.value(Signal.SM_CLOCK), gpu.value(Signal.SM_CLOCK_MOST)
    return None if clock is None or not most else min(1.0, clock / most)
