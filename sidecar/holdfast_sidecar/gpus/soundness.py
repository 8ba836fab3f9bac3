"""Leaves out of a reading what can't be so: garbage is not told, and not judged."""

from __future__ import annotations

import dataclasses
import math

from holdfast_sidecar.readings.gpu import Gpu, GpuReading, Signal

MAY_BE_NEGATIVE = frozenset({Signal.TEMPERATURE_MARGIN})

LARGEST = 2.0**62
"""Drivers answer an unknown counter with all bits set, now and then without one of them. No
counter gets here: in bytes it is some ten years of NVLink."""


def leave_out_garbage(reading: GpuReading) -> GpuReading:
    """The same reading, without values that are no numbers, negative, or out of this world."""
    gpus = tuple(_cleaned(gpu) for gpu in reading.gpus)
    is_sound = all(one is other for one, other in zip(gpus, reading.gpus, strict=True))
    return reading if is_sound else dataclasses.replace(reading, gpus=gpus)


def _cleaned(gpu: Gpu) -> Gpu:
    values = gpu.values.values()
    # Where none is negative none is larger than the sum; with a NaN among them the sum is one.
    if not values or (min(values) >= 0 and sum(values) < LARGEST):
        return gpu
    kept = {signal: value for signal, value in gpu.values.items() if _is_sound(signal, value)}
    return gpu if len(kept) == len(values) else dataclasses.replace(gpu, values=kept)


def _is_sound(signal: Signal, value: float) -> bool:
    if not math.isfinite(value) or value >= LARGEST:
        return False
    return value >= 0 or signal in MAY_BE_NEGATIVE
