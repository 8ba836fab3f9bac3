"""Process groups whose exchange got slower, by how their members wait.

Within a group the exchange itself takes what that member waited who waited least: the last to
arrive waits for the transfer alone, the others for the last one too. That is compared with the
group's own past, and with groups that do the same. Clocks of different nodes are never compared.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from holdfast_sidecar.performance.stragglers.frame import StepFrame
from holdfast_sidecar.performance.stragglers.groups import Circle, RankGroups
from holdfast_sidecar.performance.stragglers.placement import RankPlace
from holdfast_sidecar.performance.stragglers.statistics import MAD_TO_SIGMA
from holdfast_sidecar.records.steps import StepLine

# What uneven steps add to a group's waiting where a frame has several of them. Pure.
#
# Whoever arrives last in a step waits for the exchange alone. A frame has but the means of its
# steps: where another member is last in each of them, even the one who waited least waited for
# others, and the least of the means lies above the mean of the least.

UNSURE = 3.0
"""Deviations of an estimate from a few frames of a few members, by which they may be more uneven
than it says: it is looked at in each frame, and one that seems even is enough to blame a link."""

Told = tuple[int, Mapping[int, float]]
"""Of how many steps a frame is, and the own times of all ranks in it."""


def added_us(
    frames: Iterable[Told], members: Sequence[int], size: int, unsure: float = 0.0
) -> float:
    """In the mean of these frames. members: some of the group's `size` ones. unsure: 0 says what
    is likely, more what it may be.

    The largest of n values lies (n - 1) / sqrt(2n - 1) deviations above their mean at most, however
    they are distributed (Hartley and David 1954). Of single steps that deviation is sqrt(steps)
    times what the frames' means show, and as much as those differ is no waiting for others.
    """
    squares, known = 0.0, 0
    for steps, own_us in frames:
        told = [own for rank in members if (own := own_us.get(rank)) is not None]
        if len(told) > 1:
            squares += (math.sqrt(steps) - 1) ** 2 * math.fsum(_off(told))
            known += len(told) - 1
    if not squares:
        return 0.0
    farthest = (size - 1) / math.sqrt(2 * size - 1)
    return farthest * math.sqrt(squares / known) * (1 + unsure / math.sqrt(2 * known))


def _off(told: Sequence[float]) -> Iterable[float]:
    """Squares of how far each is from their mean."""
    middle = statistics.fmean(told)
    return ((one - middle) ** 2 for one in told)


# What is remembered of one process group's exchanges: its usual one, and the newest.

LEARNT_FRAMES = 8
"""Frames after which a group's usual exchange is known well enough to be compared with."""

PAST_FRAMES = 32

NEW_FRAMES = 5

NEW_STEPS = 8
"""So many steps in a row, in two frames at least and five at most, are slower: what is over before
is a burst in the network that others' traffic makes all day, and a verdict comes in ten steps."""

TIMES = 1.3
"""So much slower than usual: rings share a card with other groups' traffic, and a fifth more or
less is what a busy network does by itself."""

DEVIATIONS = 6.0
"""Of its own past (MAD, as of a normal distribution), on each of those frames in a row: with a
thousand groups and heavy tails, chance does not do that."""

LINGERS = 0.5
"""What was slow stays so down to half of that."""

WORK_FOLLOWS = 0.5
"""Of what the exchange grew by, the own work of its members: then there is more to exchange."""

BARED = 0.5
"""Of what the exchange grew by, what its members' own work became shorter: smaller batches hide
less of it behind the computing, and the wire is as quick as it was."""

LOOKED_AT = 4
"""Every so manyth frame of the past shows how uneven its steps were."""

Newest = tuple[int, int, float, float, Mapping[int, float]]
"""After which step and up to which, the exchange, the work, the own times of all ranks (the same
mapping in all groups' histories)."""


@dataclass
class ExchangeHistory:
    """Of one group."""

    exchanges: deque[float] = field(default_factory=lambda: deque(maxlen=PAST_FRAMES))
    works: deque[float] = field(default_factory=lambda: deque(maxlen=PAST_FRAMES))
    samples: deque[Newest] = field(default_factory=lambda: deque(maxlen=PAST_FRAMES // LOOKED_AT))
    looked_at: tuple[Newest, ...] = ()
    """Of them, when the usual exchange was last worked out. What is usual of them is their lower
    quartile: when others come to be the usual ones, it changes after the exchange does."""
    newest: deque[Newest] = field(default_factory=lambda: deque(maxlen=NEW_FRAMES))
    """Of frames that are too new to be the past."""
    usual: float = 0.0
    deviation: float = 0.0
    work: float = 0.0
    aged: int = 0
    since_step: int | None = None

    def take(self, new: Newest, learns: bool) -> None:
        """One more frame. `learns`: whether what leaves the newest becomes the past."""
        if learns and self.since_step is None and len(self.newest) == NEW_FRAMES:
            self._age(self.newest[0])
        self.newest.append(new)

    def _age(self, old: Newest) -> None:
        self.exchanges.append(old[2])
        self.works.append(old[3])
        if self.aged % LOOKED_AT == 0:
            self.samples.append(old)
        self.aged += 1
        if self.aged <= LEARNT_FRAMES or self.aged % LEARNT_FRAMES == 0:
            self.usual = statistics.median(self.exchanges)
            self.work = statistics.median(self.works)
            self.looked_at = tuple(self.samples)
            self.deviation = MAD_TO_SIGMA * statistics.median(
                abs(one - self.usual) for one in self.exchanges
            )

    @property
    def is_known(self) -> bool:
        """Whether there is a past to compare with."""
        return len(self.exchanges) >= LEARNT_FRAMES

    def least(self, least_us: float) -> float:
        """What a slow one takes at least; `least_us`: what it must cost."""
        beyond = max((TIMES - 1) * self.usual, least_us, DEVIATIONS * self.deviation)
        return self.usual + (beyond if self.since_step is None else LINGERS * beyond)

    def stands_out(self, latest: Sequence[Newest], least: float) -> bool:
        """Whether all of these do, and not for more work."""
        if not all(one[2] > least for one in latest):
            return False
        if not self.is_known:
            return True
        exchange = statistics.median(one[2] for one in latest)
        work = statistics.median(one[3] for one in latest)
        grown, more_work = exchange / max(1.0, self.usual) - 1, work / max(1.0, self.work) - 1
        # The work is that of two members.
        is_bared = (self.work - work) / 2 > BARED * (exchange - self.usual)
        return grown <= 0 or (more_work < WORK_FOLLOWS * grown and not is_bared)

    def uneven_us(self, latest: Sequence[Newest], members: Sequence[int], size: int) -> float:
        """What these have in them at most because their steps are more uneven than they were.

        Rarely asked, and only then looked up: in thousands of groups it would have its price.
        """
        past = sorted(added_us([_told(one)], members, size) for one in self.looked_at)
        usual = past[len(past) // 4] if past else 0.0
        now = max(
            added_us(map(_told, ones), members, size, UNSURE) for ones in (self.newest, latest)
        )
        return max(0.0, now - usual)

    def latest(self) -> list[Newest]:
        """The newest frames, as many as make `NEW_STEPS`; empty while there are too few."""
        chosen: list[Newest] = []
        for one in reversed(self.newest):
            chosen.append(one)
            if len(chosen) >= 2 and chosen[0][1] - chosen[-1][0] >= NEW_STEPS:
                return chosen
        return chosen if len(chosen) == NEW_FRAMES else []


def _told(one: Newest) -> Told:
    after, step, _, _, own_us = one
    return step - after, own_us


TIMES_SIBLINGS = 1.6
"""So much slower than those that do the same, where it was so from the start: paths differ too."""

LEAST_OF_STEP = 0.03
"""Of a step, what it must cost: nobody looks for a cable over less."""


@dataclass(frozen=True)
class SlowExchange:
    """A process group whose members wait longer than they did, though none comes late."""

    group: str
    digest: str
    slowdown: float
    """Of the exchange: 1.5 is two and a half times as long as usual."""
    since_step: int
    ranks: tuple[int, ...]
    nodes: frozenset[str]
    exchange_us: float
    usual_us: float
    against: str = "its own past"
    """What is usual is known from there."""

    @property
    def costs_us(self) -> float:
        """Of each step."""
        return self.exchange_us - self.usual_us


@dataclass
class Exchanges:
    """Follows all groups of an attempt."""

    unjudged: tuple[str, ...] = ()
    _roll: RankGroups = field(default_factory=RankGroups)
    _pasts: dict[str, ExchangeHistory] = field(default_factory=dict)
    _measured: list[tuple[Circle, float, float]] = field(default_factory=list)
    """In the newest frame."""

    def follow(
        self, frame: StepFrame, places: Mapping[int, RankPlace], late: Collection[int] = ()
    ) -> tuple[SlowExchange, ...]:
        """Those that are slow now. `late`: ranks known to be slow themselves; while one is, a group
        of it learns nothing of what is usual."""
        circles = self._roll.read(places)
        if len(self._pasts) > len(circles):
            self._pasts = {c.digest: p for c in circles if (p := self._pasts.get(c.digest))}
        measured = [one for circle in circles if (one := _measure(circle, frame)) is not None]
        self.unjudged = tuple(_missing(circles, {circle.digest for circle, _, _ in measured}))
        after, step, own_us = frame.after_step, frame.step, frame.own_us
        pasts, late_ones = self._pasts, frozenset(late)
        for circle, exchange, work in measured:
            past = pasts.get(circle.digest)
            if past is None:
                past = pasts[circle.digest] = ExchangeHistory()
            learns = not late_ones or late_ones.isdisjoint(circle.ranks)
            past.take((after, step, exchange, work, own_us), learns)
        step_us = _step_us(frame)
        kin = {
            of: statistics.median(ones) if len(ones) > SIBLINGS else 0.0
            for of, ones in _by_kin(measured).items()
        }
        self._measured = measured
        least_us = LEAST_OF_STEP * step_us
        return tuple(
            slow
            for circle, exchange, _ in measured
            if (slow := self._judge(circle, exchange, least_us, kin)) is not None
        )

    def quick(self, slow: Iterable[SlowExchange]) -> tuple[Circle, ...]:
        """Groups that were measured and found as quick as ever."""
        slow_ones = {one.digest for one in slow}
        return tuple(
            circle
            for circle, _, _ in self._measured
            if circle.digest not in slow_ones and _is_as_ever(self._pasts[circle.digest])
        )

    def _judge(
        self, circle: Circle, newest: float, least_us: float, kin: Mapping[object, float]
    ) -> SlowExchange | None:
        past = self._pasts[circle.digest]
        against, usual = "its own past", past.usual
        least = past.least(least_us) if past.is_known else None
        if least is None or newest <= least:
            usual, against = _of_siblings(circle, past, kin), "groups that do the same"
            least = max(TIMES_SIBLINGS * usual, usual + least_us) + past.deviation
        if usual <= 0 or newest <= least:
            past.since_step = None
            return None
        latest = past.latest()
        if not latest or not past.stands_out(latest, least):
            past.since_step = None
            return None
        exchange = statistics.median(one[2] for one in latest)
        if exchange - past.uneven_us(latest, circle.some, circle.size) <= least:
            past.since_step = None
            return None
        if past.since_step is None:
            past.since_step = latest[-1][0] + 1
        return SlowExchange(
            circle.name,
            circle.digest,
            exchange / max(1.0, usual) - 1,
            past.since_step,
            circle.ranks,
            circle.nodes,
            exchange,
            usual,
            against,
        )


def _measure(circle: Circle, frame: StepFrame) -> tuple[Circle, float, float] | None:
    """Its exchange, and the own time of two of its members as a measure of how much there is to do;
    None when a member told nothing: it may have been the last one."""
    if not circle.is_whole:
        return None
    try:
        lines = circle.fetch(frame.lines)
    except KeyError:
        return None
    slot = circle.slot
    if slot is not None:
        exchange = min(map(_WAITS[slot], lines))
    else:
        told = zip(lines, circle.members, strict=True)
        exchange = min(_WAITS[at](line) for line, (_, at) in told)
    if exchange <= 0:
        return None
    first, last = circle.ends
    return circle, float(exchange), frame.own_us[first] + frame.own_us[last]


_WAITS = tuple(
    itemgetter(StepLine._fields.index(name)) for name in ("wait_1", "wait_2", "wait_3", "wait_4")
)


def _is_as_ever(past: ExchangeHistory) -> bool:
    latest = past.latest()
    if not latest or not past.is_known:
        return False
    middle = statistics.median(one[2] for one in latest)
    return middle < past.usual + AS_EVER * (TIMES - 1) * past.usual + 2 * past.deviation


AS_EVER = 0.4


def _by_kin(measured: Iterable[tuple[Circle, float, float]]) -> dict[object, list[float]]:
    """Kin -> their exchanges now."""
    found: dict[object, list[float]] = {}
    for circle, exchange, _ in measured:
        found.setdefault(circle.kin, []).append(exchange)
    return found


SIBLINGS = 3
"""Fewer others tell nothing of what is usual."""


def _of_siblings(circle: Circle, past: ExchangeHistory, kin: Mapping[object, float]) -> float:
    """The middle one of groups that do the same; 0: there are too few, or it was no slower before.

    A group whose own past is known was judged by it.
    """
    usual = kin.get(circle.kin, 0.0)
    was_quick = past.is_known and past.usual < TIMES_SIBLINGS * usual
    return 0.0 if was_quick else usual


def _step_us(frame: StepFrame) -> float:
    """How long a step takes; all ranks' take equally long, so that a few tell it."""
    lines = list(frame.lines.values())
    some = lines[:: max(1, len(lines) // 16)]
    return float(statistics.median(line.total for line in some)) if some else 0.0


def _missing(circles: Iterable[Circle], measured: Collection[str]) -> Iterable[str]:
    partial = [c for c in circles if c.digest not in measured and not c.is_whole]
    if partial:
        names = sorted({circle.name for circle in partial})
        yield (
            f"links of {', '.join(names[:3])}: not all members tell of themselves, and who is "
            "missing may be the last to arrive"
        )
