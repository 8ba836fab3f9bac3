"""What GPUs said in the last minutes, as far as rates and durations are worked out from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from holdfast_sidecar.components.gpu.ownership import GpuOwnership, GpuUsers
from holdfast_sidecar.components.gpu.readings import Gpu, GpuReading, Signal
from holdfast_sidecar.records.reports import UNMETERED, Point, RankEnergy

SPAN_S = 120.0
"""The longest time that anything is judged by."""

EVERY_S = 5.0
"""Kept no closer than this, but for the newest: 25 samples of a GPU, whatever the rhythm."""

COUNTERS = frozenset(
    {
        Signal.ECC_CORRECTED,
        Signal.ENERGY,
        Signal.THROTTLED_POWER,
        Signal.THROTTLED_SOFTWARE_THERMAL,
        Signal.THROTTLED_HARDWARE_THERMAL,
        Signal.THROTTLED_BRAKE,
        Signal.PCIE_REPLAYS,
        Signal.PCIE_NON_FATAL,
        Signal.PCIE_FATAL,
        Signal.NVLINK_REPLAYS,
        Signal.NVLINK_RECOVERIES,
        Signal.NVLINK_CRC,
        Signal.NVLINK_RECOVERY_FAILED,
    }
)
LEVELS = frozenset(
    {
        Signal.BUSY,
        Signal.SM_CLOCK,
        Signal.PCIE_WIDTH,
        Signal.PCIE_GENERATION,
        Signal.NVLINKS_ACTIVE,
        Signal.FABRIC_STATE,
        Signal.TEMPERATURE_MARGIN,
    }
)
_KEPT = (*COUNTERS, *LEVELS)


@dataclass(frozen=True)
class GpuSample:
    """One GPU at one time, CLOCK_MONOTONIC."""

    at_s: float
    values: Mapping[Signal, float]


@dataclass(frozen=True)
class Growth:
    """By how much a counter grew, and in what time."""

    amount: float
    seconds: float

    @property
    def per_s(self) -> float:
        """Also the share of the time, of a counter that counts seconds."""
        return self.amount / self.seconds


@dataclass(frozen=True)
class Track:
    """One GPU's samples, oldest first. Within them no counter goes backwards."""

    samples: tuple[GpuSample, ...] = ()

    def growth(self, signal: Signal, over_s: float, least_s: float = 1.0) -> Growth | None:
        """Of a counter over about that time; None while it was not watched for `least_s`."""
        told = [one for one in self._latest(over_s) if signal in one.values]
        if len(told) < 2 or told[-1].at_s - told[0].at_s < least_s:
            return None
        amount = told[-1].values[signal] - told[0].values[signal]
        return Growth(amount, told[-1].at_s - told[0].at_s)

    def halves(self, signal: Signal, over_s: float) -> tuple[Growth, Growth] | None:
        """The same, of the earlier and the later half of that time; None: not watched as long."""
        told = [one for one in self._latest(over_s) if signal in one.values]
        if len(told) < 3 or told[-1].at_s - told[0].at_s < over_s - EVERY_S:
            return None
        middle = told[0].at_s + (told[-1].at_s - told[0].at_s) / 2
        between = min(told[1:-1], key=lambda one: abs(one.at_s - middle))
        parts = ((told[0], between), (between, told[-1]))
        first, second = (
            Growth(b.values[signal] - a.values[signal], b.at_s - a.at_s) for a, b in parts
        )
        return first, second

    def held(self, is_so: Callable[[Mapping[Signal, float]], bool], for_s: float) -> bool:
        """Whether every sample of that time says so, and there are some from so long ago."""
        latest = self._latest(for_s + EVERY_S)
        if not latest or latest[-1].at_s - latest[0].at_s < for_s:
            return False
        return all(is_so(one.values) for one in latest)

    def median(self, signal: Signal, over_s: float) -> float | None:
        """The middle one of its values in that time."""
        told = sorted(one.values[signal] for one in self._latest(over_s) if signal in one.values)
        return told[len(told) // 2] if told else None

    def _latest(self, over_s: float) -> list[GpuSample]:
        if not self.samples:
            return []
        since_s = self.samples[-1].at_s - over_s
        return [one for one in self.samples if one.at_s >= since_s]


NOTHING = Track()


@dataclass(frozen=True)
class GpuHistory:
    """All GPUs that were seen since this began, and since when processes have been on them."""

    tracks: Mapping[str, Track] = field(default_factory=dict)
    """By UUID."""
    known: Mapping[str, Gpu] = field(default_factory=dict)
    """Each GPU as it answered last, also one that is not listed any more."""
    users_since_s: Mapping[tuple[str, int], float] = field(default_factory=dict)
    """(UUID, pid) -> since when, without a break."""
    lost_since_s: Mapping[str, float] = field(default_factory=dict)
    """UUID -> since when it has not answered."""
    filled_since_s: Mapping[str, float] = field(default_factory=dict)
    """UUID -> since when memory has been in use and no process named."""

    def track(self, uuid: str) -> Track:
        """One GPU's; empty when nothing is known of it yet."""
        return self.tracks.get(uuid, NOTHING)


def follow_gpus(before: GpuHistory, reading: GpuReading) -> GpuHistory:
    """The history after one more fresh reading."""
    at_s = reading.read_at_s
    answering = [gpu for gpu in reading.gpus if not gpu.lost]
    tracks = {
        gpu.uuid: _follow(before.track(gpu.uuid), GpuSample(at_s, _kept(gpu))) for gpu in answering
    }
    users = {(gpu.uuid, user.pid) for gpu in answering for user in gpu.users or ()}
    lost = {gpu.uuid for gpu in reading.gpus if gpu.lost}
    filled = {gpu.uuid for gpu in answering if gpu.users == () and unclaimed_bytes(gpu)}
    return GpuHistory(
        tracks={**before.tracks, **tracks},
        known={**before.known, **{gpu.uuid: gpu for gpu in answering}},
        users_since_s={one: before.users_since_s.get(one, at_s) for one in users},
        lost_since_s={uuid: before.lost_since_s.get(uuid, at_s) for uuid in lost},
        filled_since_s={uuid: before.filled_since_s.get(uuid, at_s) for uuid in filled},
    )


UNCLAIMED_RATIO = 0.05
"""Driver and firmware keep some hundred MB of a GPU, below 1 % of a current one; a rank that was
killed in the middle of training leaves most of it."""


def unclaimed_bytes(gpu: Gpu) -> float:
    """Memory in use on a GPU on which no process is named; 0 when it is no more than is usual."""
    used, size = gpu.value(Signal.MEMORY_USED), gpu.value(Signal.MEMORY_SIZE)
    if used is None or not size or used < UNCLAIMED_RATIO * size:
        return 0.0
    return used


def _kept(gpu: Gpu) -> dict[Signal, float]:
    values = gpu.values
    return {signal: values[signal] for signal in _KEPT if signal in values}


def _follow(before: Track, sample: GpuSample) -> Track:
    samples = before.samples
    if samples and _went_back(samples[-1], sample):
        return Track((sample,))
    if len(samples) >= 2 and samples[-1].at_s - samples[-2].at_s < EVERY_S:
        samples = samples[:-1]
    fresh = (one for one in samples if sample.at_s - one.at_s <= SPAN_S)
    return Track((*fresh, sample))


def _went_back(before: GpuSample, after: GpuSample) -> bool:
    """A driver that was reloaded, or a GPU that was reset, counts anew: so does this."""
    return after.at_s < before.at_s or any(
        signal in COUNTERS and value < before.values.get(signal, 0.0)
        for signal, value in after.values.items()
    )


# What the judges of GPUs are shown.


@dataclass(frozen=True)
class GpuContext:
    """A fresh reading, what went before it, and whose GPUs they are."""

    reading: GpuReading
    history: GpuHistory = field(default_factory=GpuHistory)
    ownership: GpuOwnership = field(default_factory=GpuOwnership)
    company: GpuUsers = field(default_factory=GpuUsers)

    def answering(self) -> Iterator[tuple[Gpu, Track]]:
        """Those GPUs that say something, each with its past."""
        for gpu in self.reading.gpus:
            if not gpu.lost:
                yield gpu, self.history.track(gpu.uuid)


# How fast ranks' GPUs are clocked, against what they could be. Pure.


def clock_ratios(reading: GpuReading | None, ownership: GpuOwnership) -> dict[int, float]:
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


# What ranks spend: the joules of their GPUs, by step and by token.
#
# From the GPUs' own energy counters. A GPU that several ranks share is counted to equal parts.

WINDOW_S = 120.0
POWER_WINDOW_S = 60.0

ENERGY_EVERY_S = 5.0
"""Points are kept no closer than this, but for the newest."""

MOST_W = 5_000.0
"""Some three times what any GPU draws: a counter that says more has jumped."""


@dataclass(frozen=True)
class RankProgress:
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
    ownership: GpuOwnership,
    progress: Mapping[int, RankProgress],
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


def _same_process(before: RankEnergy, now: RankProgress) -> RankEnergy:
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


def _at_step(rank: RankEnergy, now: RankProgress, at_s: float) -> RankEnergy:
    """Points lie where steps end, so that neither a part of one nor the start is counted."""
    points, has_ended = rank.points, 0 <= rank.seen_step < now.step
    rank = replace(rank, seen_step=now.step)
    if rank.joules is None or not has_ended:
        return rank
    if len(points) >= 2 and points[-1].at_s - points[-2].at_s < ENERGY_EVERY_S:
        points = points[:-1]
    point = Point(at_s, rank.joules, now.step, now.tokens)
    fresh = tuple(one for one in points if at_s - one.at_s <= WINDOW_S)
    return replace(rank, points=(*(fresh or points[-1:]), point))


# What metrics tell of GPUs beside their numbers: whose they are and what they spend.


@dataclass(frozen=True)
class GpuSummary:
    """As of the newest fresh reading."""

    ownership: GpuOwnership = field(default_factory=GpuOwnership)
    energy: EnergyAccount = field(default_factory=EnergyAccount)
