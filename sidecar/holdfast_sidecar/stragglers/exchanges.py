"""Process groups whose exchange got slower, by how their members wait.

Within a group the exchange itself takes what that member waited who waited least: the last to
arrive waits for the transfer alone, the others for the last one too. That is compared with the
group's own past, and with groups that do the same. Clocks of different nodes are never compared.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter

from holdfast_sidecar.records.steps import StepLine
from holdfast_sidecar.stragglers.exchange_history import TIMES, ExchangeHistory
from holdfast_sidecar.stragglers.frame import Frame
from holdfast_sidecar.stragglers.place import Place
from holdfast_sidecar.stragglers.roll import Circle, Roll

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
    _roll: Roll = field(default_factory=Roll)
    _pasts: dict[str, ExchangeHistory] = field(default_factory=dict)
    _measured: list[tuple[Circle, float, float]] = field(default_factory=list)
    """In the newest frame."""

    def follow(
        self, frame: Frame, places: Mapping[int, Place], late: Collection[int] = ()
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


def _measure(circle: Circle, frame: Frame) -> tuple[Circle, float, float] | None:
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


def _step_us(frame: Frame) -> float:
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
