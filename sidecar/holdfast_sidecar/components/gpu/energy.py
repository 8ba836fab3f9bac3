"""What ranks spend: the joules of their GPUs, by step and by token.

From the GPUs' own energy counters. A GPU that several ranks share is counted to equal parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from holdfast_sidecar.components.gpu.history import GpuHistory
from holdfast_sidecar.components.gpu.ownership import Ownership
from holdfast_sidecar.components.gpu.readings import GpuReading, Signal
from holdfast_sidecar.records.reports import UNMETERED, Point, RankEnergy

WINDOW_S = 120.0
POWER_WINDOW_S = 60.0

EVERY_S = 5.0
"""Points are kept no closer than this, but for the newest."""

MOST_W = 5_000.0
"""Some three times what any GPU draws: a counter that says more has jumped."""


@dataclass(frozen=True)
class Progress:
    """How far a rank's process has come."""

    pid: int
    start_ticks: int
    step: int
    tokens: int = 0
    """Of this attempt; 0: it says nothing of them."""


@dataclass(frozen=True)
class EnergyAccount:
    """All ranks of this node, and where their GPUs' counters stood last."""

    ranks: Mapping[int, RankEnergy] = field(default_factory=dict)
    counters: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """UUID -> (when, joules)."""

    def of(self, rank: int) -> RankEnergy:
        """One rank's; nothing is known where it is not metered."""
        return self.ranks.get(rank, UNMETERED)


def follow_energy(
    before: EnergyAccount,
    reading: GpuReading,
    history: GpuHistory,
    ownership: Ownership,
    progress: Mapping[int, Progress],
) -> EnergyAccount:
    """The account after one more fresh reading. Ranks that are gone keep what they have spent."""
    spent, counters = _spent(before, reading)
    ranks = dict(before.ranks)
    for rank, now in progress.items():
        tie = ownership.ties.get(rank)
        shares = {} if tie is None else {u: len(ownership.of_gpu(u)) for u in tie.gpus}
        known = {uuid: share for uuid, share in shares.items() if uuid in counters}
        joules = sum(spent.get(uuid, 0.0) / share for uuid, share in known.items())
        follows = _same_process(before.of(rank), now)
        ranks[rank] = replace(
            follows,
            joules=(follows.joules or 0.0) + joules if known else follows.joules,
            power_w=_power(history, known),
        )
        ranks[rank] = _at_step(ranks[rank], now, reading.read_at_s)
    return EnergyAccount(ranks, counters)


def _spent(
    before: EnergyAccount, reading: GpuReading
) -> tuple[dict[str, float], dict[str, tuple[float, float]]]:
    """Joules by GPU since the reading before, and the counters now. A counter that fell began
    anew with the driver: what it counted until then is not known, and is not made up."""
    spent: dict[str, float] = {}
    counters = dict(before.counters)
    at_s = reading.read_at_s
    for gpu in reading.gpus:
        joules = gpu.value(Signal.ENERGY)
        if joules is None:
            continue
        then_s, then = counters.get(gpu.uuid, (at_s, joules))
        if 0 <= joules - then <= MOST_W * (at_s - then_s):
            spent[gpu.uuid] = joules - then
        counters[gpu.uuid] = (at_s, joules)
    return spent, counters


def _same_process(before: RankEnergy, now: Progress) -> RankEnergy:
    who = (now.pid, now.start_ticks)
    if (before.pid, before.start_ticks) == who:
        return before
    return replace(before, pid=now.pid, start_ticks=now.start_ticks, seen_step=-1, points=())


def _power(history: GpuHistory, gpus: Mapping[str, int]) -> float | None:
    """Of all of a rank's GPUs, or not at all: a part of them would pass for the whole."""
    drawn = 0.0
    for uuid, share in gpus.items():
        growth = history.track(uuid).growth(Signal.ENERGY, POWER_WINDOW_S)
        if growth is None:
            return None
        drawn += growth.per_s / share
    return drawn if gpus else None


def _at_step(rank: RankEnergy, now: Progress, at_s: float) -> RankEnergy:
    """Points lie where steps end, so that neither a part of one nor the start is counted."""
    points, has_ended = rank.points, 0 <= rank.seen_step < now.step
    rank = replace(rank, seen_step=now.step)
    if rank.joules is None or not has_ended:
        return rank
    if len(points) >= 2 and points[-1].at_s - points[-2].at_s < EVERY_S:
        points = points[:-1]
    point = Point(at_s, rank.joules, now.step, now.tokens)
    fresh = tuple(one for one in points if at_s - one.at_s <= WINDOW_S)
    return replace(rank, points=(*(fresh or points[-1:]), point))


# What metrics tell of GPUs beside their numbers: whose they are and what they spend.


@dataclass(frozen=True)
class GpuView:
    """As of the newest fresh reading."""

    ownership: Ownership = field(default_factory=Ownership)
    energy: EnergyAccount = field(default_factory=EnergyAccount)
