"""A node of GPUs, told in a few words: readings over time, ranks and their processes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping

from tests.unit.ranks.scene import moment

from holdfast_sidecar.components.gpu.component import judge_rates, judge_states
from holdfast_sidecar.components.gpu.history import GpuContext, GpuHistory, follow_gpus
from holdfast_sidecar.components.gpu.ownership import (
    GpuOwnership,
    GpuProcess,
    GpuUsers,
    RankDevice,
    Seat,
    tie_up,
)
from holdfast_sidecar.components.gpu.readings import Gpu, GpuReading, GpuUser, Signal
from holdfast_sidecar.records.findings import Finding

GIB = 2.0**30

HEALTHY: Mapping[Signal, float] = {
    Signal.BUSY: 1.0,
    Signal.MEMORY_SIZE: 80 * GIB,
    Signal.MEMORY_USED: 60 * GIB,
    Signal.SM_CLOCK: 1.7e9,
    Signal.ENERGY: 5e6,
    Signal.TEMPERATURE: 60.0,
    Signal.TEMPERATURE_MARGIN: 25.0,
    Signal.RECOVERY_ACTION: 0,
    Signal.ECC_CORRECTED: 3,
    Signal.ECC_UNCORRECTED: 0,
    Signal.SRAM_THRESHOLD_EXCEEDED: 0,
    Signal.REMAPPED_CORRECTABLE: 1,
    Signal.REMAPPED_UNCORRECTABLE: 1,
    Signal.REMAP_PENDING: 0,
    Signal.REMAP_FAILURE: 0,
    Signal.BANKS_ALL_LEFT: 639,
    Signal.BANKS_MANY_LEFT: 1,
    Signal.BANKS_SOME_LEFT: 0,
    Signal.BANKS_FEW_LEFT: 0,
    Signal.BANKS_NONE_LEFT: 0,
    Signal.THROTTLED_POWER: 900.0,
    Signal.THROTTLED_SOFTWARE_THERMAL: 0.5,
    Signal.THROTTLED_HARDWARE_THERMAL: 0.0,
    Signal.THROTTLED_BRAKE: 0.0,
    Signal.PCIE_WIDTH: 16,
    Signal.PCIE_WIDTH_MOST: 16,
    Signal.PCIE_GENERATION: 5,
    Signal.PCIE_GENERATION_MOST: 5,
    Signal.PCIE_REPLAYS: 7,
    Signal.PCIE_FATAL: 0,
    Signal.PCIE_NON_FATAL: 0,
    Signal.NVLINKS_ACTIVE: 18,
    Signal.NVLINKS_EXPECTED: 18,
    Signal.NVLINK_REPLAYS: 0,
    Signal.NVLINK_RECOVERIES: 0,
    Signal.NVLINK_CRC: 0,
    Signal.NVLINK_RECOVERY_FAILED: 0,
    Signal.FABRIC_STATE: 3,
    Signal.FABRIC_DEGRADED: 0,
}


def gpu(index: int = 0, users: Iterable[int] | None = None, **changed: float) -> Gpu:
    """A healthy GPU that computes for the rank of its number; values by the signal's name."""
    values = {**HEALTHY, **{Signal[name]: value for name, value in changed.items()}}
    pids = (1000 + index,) if users is None else users
    return Gpu(
        index=index,
        uuid=f"GPU-{index:08x}-aaaa",
        model="Twin 9000",
        pci=f"0000:{0x10 + index:02x}:00.0",
        values=values,
        users=tuple(GpuUser(pid, int(60 * GIB)) for pid in pids),
    )


def without(one: Gpu, *signals: Signal) -> Gpu:
    """The same GPU, which refuses to tell these."""
    values = {signal: value for signal, value in one.values.items() if signal not in signals}
    return dataclasses.replace(one, values=values)


def lost(one: Gpu, why: str = "GPU is lost") -> Gpu:
    """The same GPU, fallen off the bus."""
    return dataclasses.replace(one, values={}, users=None, lost=why)


def reading(*gpus: Gpu, at_s: float = 100.0, expected: int | None = None) -> GpuReading:
    return GpuReading(True, "580.1", gpus, expected, read_at_s=at_s)


def seat(rank: int, environment: Mapping[str, str] | None = None, *devices: RankDevice) -> Seat:
    """Rank N of a node whose ranks count from 0, with pid 1000 + N."""
    return Seat(rank, rank, 1000 + rank, 77, environment, devices)


def company(*seats: Seat, processes: Iterable[GpuProcess] = (), sees_all: bool = True) -> GpuUsers:
    ranks = {one.pid: GpuProcess(one.pid, "python", one.start_ticks, (900,)) for one in seats}
    others = {one.pid: one for one in processes}
    return GpuUsers(seats, {**ranks, **others}, frozenset({900, 901}), sees_all)


def ranks(count: int) -> GpuUsers:
    """So many ranks that say nothing of their environment."""
    return company(*(seat(rank) for rank in range(count)))


def watched(
    at: Callable[[float], Iterable[Gpu]],
    until_s: float = 60.0,
    every_s: float = 1.0,
    who: GpuUsers | None = None,
    expected: int | None = None,
) -> GpuContext:
    """The scene after a reading every second from 0 on; `at` says what is read at a time."""
    history, ownership = GpuHistory(), GpuOwnership()
    scene = None
    around = ranks(8) if who is None else who
    for turn in range(int(until_s / every_s) + 1):
        one = reading(*at(turn * every_s), at_s=100.0 + turn * every_s, expected=expected)
        history = follow_gpus(history, one)
        ownership = tie_up(one, around, ownership)
        scene = GpuContext(one, history, ownership, around)
    assert scene is not None
    return scene


def found(scene: GpuContext) -> list[Finding]:
    now = moment(scene.reading.read_at_s)
    return [*judge_states(scene, now), *judge_rates(scene, now)]


def troubles(scene: GpuContext) -> list[tuple[str, str]]:
    """Kind and which, of everything found."""
    return [(finding.kind.value, finding.what) for finding in found(scene)]
