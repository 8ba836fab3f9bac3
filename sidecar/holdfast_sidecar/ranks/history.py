"""What is remembered of a rank's losses and gradient norms, and how far the newest are from usual.

Pure. A robust z-score: the distance from the median of the attempt's latest values, in units of
their median absolute deviation, which a few wild values among them don't move.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from holdfast.contract.page import Record, RecordFlag
from holdfast_sidecar.config.settings import NumbersSettings
from holdfast_sidecar.linux.syscalls import ThreadWait, Where

WINDOW = 128
"""Values that say what is usual: enough for a steady median, few enough to follow a falling loss.
A loss that has kept a new level for as long is taken to have moved there."""

SETTLED = 64
"""Before there are so many nothing is called unusual: an attempt's first steps vary by nature."""

CHUNK = 32
"""What is usual is worked out anew after so many values, not for each."""

DEVIATION_OF_NORMAL = 1.4826
"""A normal distribution's standard deviation is so many median absolute deviations."""

LEAST_SHARE = 0.05
"""A loss that hardly varies would make a high score of any trifle: its deviation counts as at
least this share of its median, so that ten of them are half as much again."""

LEAST_OF_LOGARITHMS = 0.2
"""Norms are compared by their logarithms, since they vary by factors: twofold is nothing to note,
and ten of these are more than sevenfold."""

LEAST_NUMBER = 1e-9
"""Deviation of what is constantly nothing."""

_LOSS, _GRADIENT = int(RecordFlag.LOSS), int(RecordFlag.GRADIENT)
_EITHER = _LOSS | _GRADIENT


@dataclass(frozen=True)
class NumberSeries:
    """One kind of number. What is beyond the limit is not taken for usual, until it lasts."""

    least_share: float
    """See LEAST_SHARE; 0: these are logarithms, see LEAST_OF_LOGARITHMS."""
    usual: tuple[float, ...] = ()
    beyond: tuple[float, ...] = ()
    """The latest values, in a row, that were beyond the limit."""
    onset_step: int = -1
    """Step of the first of them; -1: the newest value is usual."""
    is_spike: bool = False
    """Whether they are as many as make a spike."""
    spikes: int = 0
    """How often so far they were."""
    limit: float = math.inf
    """From where on a value is beyond."""
    fresh: int = 0
    """So many usual values came since that was worked out."""

    def follow(
        self, values: Sequence[tuple[int, float]], settings: NumbersSettings
    ) -> NumberSeries:
        """The series after these (step, value), oldest first; none of them is NaN or infinite."""
        usual, beyond = list(self.usual), list(self.beyond)
        onset, spikes, limit, fresh = self.onset_step, self.spikes, self.limit, self.fresh
        for step, value in values:
            if fresh >= CHUNK and len(usual) >= SETTLED:
                del usual[:-WINDOW]
                limit, fresh = find_limit(usual, self.least_share, settings.spike_z), 0
            if value < limit:
                usual.append(value)
                fresh += 1
                beyond, onset = [], -1
                continue
            onset = onset if beyond else step
            beyond.append(value)
            spikes += len(beyond) == settings.spike_steps
            if len(beyond) >= WINDOW:
                usual, beyond, onset, fresh = beyond, [], -1, CHUNK
        is_spike = len(beyond) >= settings.spike_steps
        kept = (tuple(usual[-WINDOW:]), tuple(beyond))
        return NumberSeries(self.least_share, *kept, onset, is_spike, spikes, limit, fresh)


def find_limit(values: Sequence[float], least_share: float, spike_z: float) -> float:
    """From where on a value is beyond what these have been."""
    middle = statistics.median(values)
    spread = statistics.median([abs(value - middle) for value in values])
    least = least_share * abs(middle) if least_share else LEAST_OF_LOGARITHMS
    return middle + spike_z * max(DEVIATION_OF_NORMAL * spread, least, LEAST_NUMBER)


@dataclass(frozen=True)
class NumberHistory:
    """Losses and gradient norms of one rank within one attempt."""

    loss: NumberSeries = NumberSeries(LEAST_SHARE)
    gradient: NumberSeries = NumberSeries(0.0)
    """Of the norms' logarithms."""
    ill_steps: int = 0
    """So many in a row were NaN or infinite, by loss or norm."""

    @property
    def spikes(self) -> int:
        """How often so far there was a spike, of either kind."""
        return self.loss.spikes + self.gradient.spikes

    @property
    def spike(self) -> NumberSeries | None:
        """The one that spikes now, the first if both do."""
        return min(
            (series for series in (self.loss, self.gradient) if series.is_spike),
            key=lambda series: series.onset_step,
            default=None,
        )


def follow_numbers(
    before: NumberHistory, records: Sequence[Record], settings: NumbersSettings
) -> NumberHistory:
    """The history after these records, oldest first."""
    told = [record for record in records if tells(record)]
    if not told:
        return before
    loss = before.loss.follow(list(_losses(told)), settings)
    gradient = before.gradient.follow(list(_logarithms_of_norms(told)), settings)
    return NumberHistory(loss, gradient, _count_ill(before.ill_steps, told))


def is_ill(record: Record) -> bool:
    """Whether something that became known with this record is NaN or infinite."""
    return bool(
        (record.flags & _LOSS and not math.isfinite(record.loss))
        or (record.flags & _GRADIENT and not math.isfinite(record.gradient_norm))
    )


def tells(record: Record) -> bool:
    """Whether a loss or a gradient norm became known with this record."""
    return bool(record.flags & _EITHER)


def _losses(records: Iterable[Record]) -> Iterator[tuple[int, float]]:
    for record in records:
        if record.flags & _LOSS and math.isfinite(record.loss):
            yield record.step, record.loss


def _logarithms_of_norms(records: Iterable[Record]) -> Iterator[tuple[int, float]]:
    for record in records:
        if record.flags & _GRADIENT and math.isfinite(record.gradient_norm):
            yield record.step, math.log(max(record.gradient_norm, LEAST_NUMBER))


def _count_ill(before: int, records: Iterable[Record]) -> int:
    ill = before
    for record in records:
        ill = ill + 1 if is_ill(record) else 0
    return ill


# How long something takes, as a sketch of its durations: of fixed size, and forgetful.
#
# Buckets grow with what they hold, four to a doubling, so a quantile read from them is never too
# low and at most a quarter too high, whatever the durations are. Pure.

LONGEST_US = 2**32 - 1
"""What a record's field can hold: 71 minutes."""

BUCKETS = 4 * 31

KEPT = 1024.0
"""Once so many are counted, all counts are halved: a hiccup that comes every hundred steps stays
known, and an era of other batch lengths is forgotten within some two thousand steps."""

LEAST_WEIGHT = 0.01
"""What was halved this often is forgotten."""


@dataclass(frozen=True)
class Durations:
    """Counts of durations by bucket. Durations go in as microseconds, as records hold them."""

    counts: Mapping[int, float] = field(default_factory=dict)
    """By bucket; most are empty, and left out."""
    count: float = 0.0
    """How many are remembered."""

    def with_more(self, durations_us: Iterable[int]) -> Durations:
        """These and more; older ones weigh less once there are many."""
        counts, total = dict(self.counts), self.count
        for one_us in durations_us:
            bucket = bucket_of(one_us)
            counts[bucket] = counts.get(bucket, 0.0) + 1.0
            total += 1.0
            if total > KEPT:
                counts = {each: count / 2 for each, count in counts.items() if count > LEAST_WEIGHT}
                total = sum(counts.values())
        return Durations(counts, total)

    def quantile_s(self, share: float) -> float:
        """So long took this share of them at most, seconds; 0 when none is known."""
        wanted = math.ceil(share * self.count)
        reached = 0.0
        for bucket in sorted(self.counts):
            reached += self.counts[bucket]
            if reached >= wanted:
                return longest_us(bucket) / 1e6
        return 0.0


def bucket_of(duration_us: int) -> int:
    """The bucket of a duration: its highest bit, and the two bits below. This is what a step costs
    the sidecar, six times."""
    if duration_us < 4:
        return max(duration_us, 0)
    if duration_us > LONGEST_US:
        return BUCKETS - 1
    bits = duration_us.bit_length()
    return 4 * (bits - 2) + (duration_us >> (bits - 3) & 3)


def longest_us(bucket: int) -> int:
    """The longest duration that goes into this bucket."""
    if bucket < 4:
        return bucket
    return ((5 + bucket % 4) << (bucket // 4 - 1)) - 1


# What a rank's steps have taken in this attempt, phase by phase, learnt as they end. Pure.

LEARNT = {
    part: f"{part}_us"
    for part in ("data", "forward", "backward", "communicating", "optimizer", "other", "transfer")
}
"""Parts of an ordinary step, and where a record has them. Saving, like whatever no record tells of,
comes rarely and varies without bound."""

_learnt: Callable[[Record], tuple[int, ...]] = attrgetter(*LEARNT.values())

WARM_UP_STEPS = 2
"""The first step compiles and warms caches, the second still rebuilds DDP's buckets: both may take
a thousand times what follows, and say nothing about it."""


@dataclass(frozen=True)
class PhaseDurations:
    """Durations by part of a step."""

    steps: int = 0
    """Steps that ended so far in this attempt, as far as this sidecar saw them."""
    parts: Mapping[str, Durations] = field(default_factory=dict)

    @property
    def steps_learnt(self) -> int:
        """Steps that count."""
        return max(0, self.steps - WARM_UP_STEPS)

    def after(self, records: Sequence[Record]) -> PhaseDurations:
        """The pace once these steps have ended."""
        if not records:
            return self
        telling = records[max(0, WARM_UP_STEPS - self.steps) :]
        columns = list(zip(*map(_learnt, telling), strict=True)) or [()] * len(LEARNT)
        parts = {
            part: self.parts.get(part, Durations()).with_more(column)
            for part, column in zip(LEARNT, columns, strict=True)
        }
        return PhaseDurations(self.steps + len(records), parts)


WINDOWS_KEPT = 8
"""So many of the latest count: one that was longer by chance is forgotten within the hour."""


@dataclass(frozen=True)
class OptimizerWindows:
    """What lies between two calls of the optimizer: where gradients are gathered over many steps, a
    rank can be saved only at the end of such a window."""

    calls: int = 0
    """Of the optimizer, in this attempt."""
    gathered_us: int = 0
    """What the steps since the newest call took."""
    latest_us: tuple[int, ...] = ()
    """What its latest windows took, without what comes rarely: saving, evaluating, compiling."""

    @property
    def longest_s(self) -> float:
        """Of the latest; 0 while none is known."""
        return max(self.latest_us, default=0) / 1e6

    def after(self, records: Sequence[Record], calls: int) -> OptimizerWindows:
        """The windows once these steps have ended, and the optimizer was called so often in all."""
        more = calls - self.calls
        if not records and more == 0:
            return self
        gathered_us = self.gathered_us + sum(map(_ordinary_us, records))
        if more <= 0:
            return replace(self, gathered_us=gathered_us)
        if self.calls == 0 and calls > 1:  # how long the first of them took was not seen
            return OptimizerWindows(calls)
        latest_us = (*self.latest_us, gathered_us // more)[-WINDOWS_KEPT:]
        return OptimizerWindows(calls, 0, latest_us)


def _ordinary_us(record: Record) -> int:
    return record.total_us - record.saving_us - record.evaluating_us - record.compiling_us


# A closer look at a rank under suspicion: where its threads wait, and how its children stand.
#
# Plain data and what follows from two such looks; reading is for `ranks.inspection`.

BUSY_TICKS_PER_S = 5.0
"""CPU time, in clock ticks, from which on a child counts as at work: 5 % of a core. A worker that
only looks into its empty queue every few seconds takes a thousandth."""

MOVED_BYTES = 65_536
"""Read and written by a rank between two looks, from which on it counts as at work: an answer about
its collectives, or a line into a log, is less."""

LOADER_WORKER = "pt_data_worker"
"""What torch's DataLoader calls its workers."""

AT_WORK = frozenset(
    {
        *(Where.SLEEP, Where.NETWORK, Where.STORAGE),
        *(Where.PROCESS, Where.DEVICE, Where.OTHER),
    }
)
"""What another thread or a child may wait for on behalf of who waits for it. A pause between two
tries to upload is one, too; and so may be what we don't know."""

RESTED_LOOKS = 5
"""In so many looks in a row nobody was at work: who works also waits for a lock now and then."""


@dataclass(frozen=True)
class Descendant:
    """A child of a rank, or a child's child, as /proc shows it."""

    pid: int
    name: str
    state: str
    cpu_ticks: int
    is_worker: bool
    """It runs the rank's own program: a loader's worker, or another fork of it."""
    exit_status: int = 0
    """As wait(2) would tell it; of one that ended and was not waited for."""
    transferred: int | None = None
    """Bytes read and written by calls so far; None when that can't be read."""
    wait: ThreadWait | None = None
    """Where its main thread waits, or the one of its threads that is at work."""

    @property
    def has_died(self) -> bool:
        """Whether it ended badly."""
        return self.state in ("Z", "X") and self.exit_status != 0


@dataclass(frozen=True)
class CloserLook:
    """One closer look."""

    at_s: float
    mark: tuple[int, int, int]
    """Claim, progress and step of the rank: it moved in between when they differ."""
    main: ThreadWait | None = None
    """None: the kernel doesn't let us see it."""
    at_work: str = ""
    """Which other thread of it may be at work, in words; empty: none."""
    children: tuple[Descendant, ...] = ()
    transferred: int | None = None
    pauses_s: tuple[float, ...] = ()
    """For how long those other threads wait at most that will go on by themselves."""


@dataclass(frozen=True)
class Inspection:
    """What closer looks have shown since the rank last moved."""

    look: CloserLook
    before: CloserLook | None = None
    """The look before, of the same standstill."""
    stands_since_s: float = 0.0
    """Since when the main thread was found in the very same wait."""
    stopped: Mapping[int, float] = field(default_factory=dict)
    """Children (by pid) that every look since then found stopped."""
    rest: CloserLook | None = None
    """The first of the latest looks that found nobody at work; None: the newest found somebody."""
    rested_looks: int = 0
    """How many looks found nobody at work since then."""

    @property
    def stands_s(self) -> float:
        """For how long the main thread has been seen in the very same wait."""
        return self.look.at_s - self.stands_since_s

    def has_rested(self, patience_s: float) -> bool:
        """Whether for long enough nobody but the main thread was at work, nor only paused.

        patience_s: a pause that takes longer counts as one without an end.
        """
        if self.rest is None or self.rested_looks < RESTED_LOOKS:
            return False
        waits = (child.wait for child in self.rest.children if child.wait is not None)
        ends_s = (wait.ends_unaided_s for wait in waits if wait.where is Where.LOCK)
        all_s = (*self.rest.pauses_s, *ends_s)
        # However great the patience: what has no end is no pause.
        pauses_s = [one for one in all_s if one <= patience_s and not math.isinf(one)]
        return self.look.at_s > self.rest.at_s + max(pauses_s, default=0.0)

    def busy_child(self) -> Descendant | None:
        """A child that used a CPU, moved bytes, or waits for storage, network or a timer."""
        earlier = {} if self.before is None else {c.pid: c for c in self.before.children}
        elapsed_s = 0.0 if self.before is None else self.look.at_s - self.before.at_s
        for child in self.look.children:
            if _is_busy(child, earlier.get(child.pid), elapsed_s):
                return child
        return None

    @property
    def moved_bytes(self) -> int:
        """What the rank itself read and wrote between the two looks, as far as that is known."""
        now = self.look.transferred
        before = None if self.before is None else self.before.transferred
        return 0 if now is None or before is None else now - before


def scrutinise(before: Inspection | None, look: CloserLook) -> Inspection:
    """What is known after one more closer look; it starts anew when the rank has moved."""
    if before is None or before.look.mark != look.mark:
        return _with_rest(Inspection(look, None, look.at_s, _stopped({}, look)))
    is_same = (
        look.main is not None
        and before.look.main is not None
        and (look.main.place == before.look.main.place and look.main.where is not Where.CPU)
    )
    after = replace(
        before,
        look=look,
        before=before.look,
        stands_since_s=before.stands_since_s if is_same else look.at_s,
        stopped=_stopped(before.stopped, look),
    )
    return _with_rest(after)


def _with_rest(scrutiny: Inspection) -> Inspection:
    look = scrutiny.look
    is_at_work = look.at_work or scrutiny.moved_bytes >= MOVED_BYTES
    if is_at_work or scrutiny.busy_child() is not None:
        return replace(scrutiny, rest=None, rested_looks=0)
    rest = look if scrutiny.rest is None else scrutiny.rest
    return replace(scrutiny, rest=rest, rested_looks=scrutiny.rested_looks + 1)


def _stopped(before: Mapping[int, float], look: CloserLook) -> Mapping[int, float]:
    return {c.pid: before.get(c.pid, look.at_s) for c in look.children if c.state == "T"}


def _is_busy(child: Descendant, earlier: Descendant | None, elapsed_s: float) -> bool:
    if child.state in ("T", "Z", "X"):
        return False
    if child.state in ("D", "t") or (child.wait is not None and child.wait.where in AT_WORK):
        return True
    if earlier is None or elapsed_s <= 0:
        return child.state == "R"
    ticks = child.cpu_ticks - earlier.cpu_ticks
    if ticks > 1 + BUSY_TICKS_PER_S * elapsed_s or child.transferred != earlier.transferred:
        return True
    # Of one whose calls may not be read only torch's own workers are known to rest.
    return child.wait is None and not child.name.startswith(LOADER_WORKER)
