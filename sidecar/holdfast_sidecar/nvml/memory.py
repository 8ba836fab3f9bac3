"""Which GPUs were there: a child that is new has never seen one that fell away before. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from holdfast_sidecar.readings.gpu import Gpu, GpuReading

GONE = "the driver listed it before and does not any more"


def bare(gpu: Gpu, lost: str = "") -> Gpu:
    """Who it is, and nothing of how it fares."""
    return replace(gpu, values={}, refused={}, users=None, lost=lost)


def with_known(reading: GpuReading, known: Mapping[str, Gpu]) -> GpuReading:
    """The reading with all that is known of GPUs that are in it no more; `known` by UUID."""
    there = {gpu.uuid for gpu in reading.gpus}
    missing = {gpu.index: gpu for uuid, gpu in known.items() if uuid not in there}
    gpus = []
    for gpu in reading.gpus:
        # One that can't be opened does not say who it is.
        is_nameless = not gpu.uuid and gpu.index in missing
        gpus.append(bare(missing.pop(gpu.index), gpu.lost) if is_nameless else gpu)
    gpus += [bare(gpu, GONE) for gpu in missing.values()]
    expected = max(reading.expected or 0, len(known))
    return replace(reading, gpus=tuple(gpus), expected=expected)


def known_by(reading: GpuReading, known: Mapping[str, Gpu]) -> dict[str, Gpu]:
    """The same with the GPUs of this reading."""
    return {**known, **{gpu.uuid: gpu for gpu in reading.gpus if gpu.uuid}}
