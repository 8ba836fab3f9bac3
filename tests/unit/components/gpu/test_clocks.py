from __future__ import annotations

from dataclasses import replace

from tests.unit.components.gpu.nodes import gpu

from holdfast_sidecar.components.gpu.history import clock_ratios
from holdfast_sidecar.components.gpu.ownership import GpuOwnership, OwnershipSource, Tie
from holdfast_sidecar.components.gpu.readings import GpuReading, Signal


def owning(**gpus: int) -> GpuOwnership:
    """UUID -> rank."""
    ranks = set(gpus.values())
    ties = {
        rank: Tie(
            rank, rank, 1, 1, tuple(u for u, r in gpus.items() if r == rank), OwnershipSource.TORCH
        )
        for rank in ranks
    }
    return GpuOwnership(ties)


def reading(**clocks: float | None) -> GpuReading:
    gpus = [
        replace(
            gpu(index),
            uuid=uuid,
            values={Signal.SM_CLOCK_MOST: 2e9}
            | ({} if clock is None else {Signal.SM_CLOCK: clock}),
        )
        for index, (uuid, clock) in enumerate(clocks.items())
    ]
    return GpuReading(True, gpus=tuple(gpus))


def test_a_rank_is_as_fast_as_the_slowest_of_its_gpus() -> None:
    told = reading(a=1.5e9, b=1e9, c=2.1e9, d=None)
    assert clock_ratios(told, owning(a=0, b=0, c=1, d=2)) == {0: 0.5, 1: 1.0}


def test_what_was_read_before_the_driver_fell_silent_says_nothing_of_now() -> None:
    assert clock_ratios(replace(reading(a=1e9), stale_since_s=3.0), owning(a=0)) == {}
    assert clock_ratios(None, owning(a=0)) == {}
