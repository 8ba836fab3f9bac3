"""Whether a rank's spells are worth a word: they come again and again, cost the job enough, and are
no chance.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from holdfast_sidecar.performance.stragglers.causes import Named, advise, name_cause
from holdfast_sidecar.performance.stragglers.frame import Excess, StepFrame
from holdfast_sidecar.performance.stragglers.placement import RankPlace
from holdfast_sidecar.performance.stragglers.signals import Signals, SlowCase, hear
from holdfast_sidecar.performance.stragglers.spells import (
    HICCUPS,
    Chance,
    SlowSpell,
    SpellKind,
    Spells,
)
from holdfast_sidecar.performance.stragglers.statistics import MAD_TO_SIGMA
from holdfast_sidecar.performance.stragglers.trouble import MOST_CERTAIN, SlownessTrouble, lasts
from holdfast_sidecar.records.findings import Finding
from holdfast_sidecar.records.formatting import span
from holdfast_sidecar.records.steps import SlowCause

TIMES = 4
"""Three in a row have two distances, and those say little of how often they come."""

COSTS = 0.05
"""Of the job's time, in the mean: as for who is slow in each step."""

MOST_COVERED = 0.75
"""Of the steps: who is slow in more of them is slow all the time, and the detector's to judge."""

SHORT = 1.5
"""Frames in the mean: what lasts longer comes and goes, and is not a single long step."""

OVERDUE = 3.0
"""Times the usual distance between two spells: then they are over."""


@dataclass(frozen=True)
class Recurring:
    """A rank that is slow again and again; microseconds of a step, means over its spells' steps,
    but for `slowdown` and `costs_us`."""

    rank: int
    role: str
    peers: int
    """Ranks of its role, itself among them."""
    kind: SpellKind
    slowdown: float
    """Over all steps."""
    since_step: int
    seen_steps: int
    times: int
    apart: float
    """Steps from one spell's beginning to the next."""
    lasts: float
    """Steps of a spell."""
    is_short: bool
    """A spell is in one frame mostly, and perhaps one of its steps."""
    own: Signals | None
    peers_signals: Signals | None
    own_us: float
    peers_us: float
    costs_us: float
    """Of each step of the job, over all steps."""
    gain: float
    step_us: float
    """What a step of the job takes in the mean."""
    owed_us: float = 0.0
    """What it cost before it was told, and was put down to nobody."""

    def is_over(self, step: int, newest: SlowSpell) -> bool:
        """Whether the next one should have come long ago."""
        return step - newest.step > OVERDUE * self.apart


def weigh(
    spells: Spells, chance: Chance, ranks: int, judged: int, is_told: bool
) -> Recurring | None:
    """As many of the newest spells as belong together; None: no choice of them is worth a word. Who
    is told already is so until it costs half as much, and is not doubted again."""
    seen = list(spells.seen)
    if len(seen) < TIMES:
        return None
    least = COSTS / 2 if is_told else COSTS
    is_sure = is_told or spells.kind is not SpellKind.WORK
    choices = [
        seen[first:]
        for first in _worth_it(seen, least)
        if is_sure or not chance.explains(seen[first:], ranks, judged)
    ]
    return _recurring(spells, max(choices, key=_density), ranks) if choices else None


def _density(seen: Sequence[SlowSpell]) -> float:
    """How much more often they come than hiccups (log likelihood ratio): less with a hiccup in it
    that the rank had long before its trouble began."""
    times = len(seen) - 1
    by_chance = HICCUPS * max(1, seen[-1].after_step - seen[0].after_step)
    return times * math.log(times / by_chance) - times + by_chance


def _worth_it(seen: Sequence[SlowSpell], least: float) -> Iterator[int]:
    """Where choices begin that cost the job enough, and don't cover most steps; shortest first."""
    newest = seen[-1]
    saved_us, covered = 0.0, 0
    for first in range(len(seen) - 2, -1, -1):
        spell = seen[first]
        saved_us += spell.saved_us
        covered += spell.steps
        lasted_us = newest.began_us - spell.began_us
        is_seldom = covered <= MOST_COVERED * (newest.after_step - spell.after_step)
        is_dear = saved_us >= least * (lasted_us - saved_us)
        if is_seldom and is_dear and len(seen) - first >= TIMES:
            yield first


def costs_enough(seen: Sequence[SlowSpell]) -> bool:
    """Whether those but the newest cost the job enough, from the first to the newest."""
    step_us, costs_us = _per_step(seen)
    return costs_us >= COSTS * (step_us - costs_us)


def _per_step(seen: Sequence[SlowSpell]) -> tuple[float, float]:
    """What a step takes in the mean, and what the spells cost of it: from the first one's beginning
    to that of the newest, so that as many ways from one to the next are in it as spells."""
    steps = max(1, seen[-1].after_step - seen[0].after_step)
    lasted_us = seen[-1].began_us - seen[0].began_us
    return lasted_us / steps, sum(one.saved_us for one in seen[:-1]) / steps


def _recurring(spells: Spells, seen: Sequence[SlowSpell], ranks: int) -> Recurring:
    step_us, costs_us = _per_step(seen)
    steps = max(1, seen[-1].after_step - seen[0].after_step)
    apart = steps / (len(seen) - 1)
    usual_us = sum(one.usual_us for one in seen) / len(seen)
    lasts = sum(one.steps for one in seen[:-1]) / (len(seen) - 1)
    beyond_us = sum(one.beyond_us for one in seen[:-1])
    return Recurring(
        rank=seen[0].rank,
        role=spells.role,
        peers=ranks,
        kind=spells.kind,
        slowdown=beyond_us / steps / max(1.0, usual_us),
        since_step=seen[0].after_step + 1,
        seen_steps=round(steps + apart),
        times=len(seen),
        apart=apart,
        lasts=lasts,
        is_short=sum(one.frames for one in seen) <= SHORT * len(seen),
        own=spells.own,
        peers_signals=spells.peers,
        own_us=usual_us + beyond_us / (len(seen) - 1) / max(1.0, lasts),
        peers_us=usual_us,
        costs_us=costs_us,
        gain=costs_us / max(1.0, step_us - costs_us),
        step_us=step_us,
    )


# Troubles of ranks that are slow in some steps, again and again.

SURE = 0.9
"""Of bursts, in a role of four ranks and more."""

SEEN = 0.95
"""Of what a rank was seen to do: nothing is inferred from how long others take."""

_PAUSES = {SpellKind.EVALUATING: SlowCause.EVALUATION, SpellKind.SAVING: SlowCause.SAVING}


def recurring_ranks(
    found: Sequence[Recurring],
    places: Mapping[int, RankPlace],
    findings: Sequence[Finding],
    step: int,
) -> list[SlownessTrouble]:
    """One each."""
    return [_trouble(one, places[one.rank], findings, step) for one in found]


def _trouble(
    one: Recurring, place: RankPlace, findings: Sequence[Finding], step: int
) -> SlownessTrouble:
    sure = SURE if one.kind is SpellKind.WORK else SEEN
    if one.kind is SpellKind.WORK:
        sure = min(sure, MOST_CERTAIN.get(one.peers, sure))
    named = _name(one, place, findings, sure)
    return SlownessTrouble(
        ranks=(one.rank,),
        node=place.node,
        role=one.role,
        named=replace(named, evidence=(_how_often(one), *named.evidence)),
        slowdown=one.slowdown,
        confidence=sure,
        since_step=one.since_step,
        is_persistent=lasts(one.since_step, step, one.step_us / 1e6),
        accounts=(f"rank {one.rank}",),
        costs_us=one.costs_us,
        known_gain=one.gain,
        owed_us=one.owed_us,
    )


def _name(one: Recurring, place: RankPlace, findings: Sequence[Finding], sure: float) -> Named:
    if one.kind is not SpellKind.WORK or one.own is None:
        cause = _PAUSES.get(one.kind, SlowCause.UNKNOWN)
        text = f"its peers are not {one.kind.value} then, and wait for it"
        return Named(cause, sure, (text,), advise(cause), one.kind.value)
    excess = Excess(
        rank=one.rank,
        role=one.role,
        slowdown=one.slowdown,
        confidence=sure,
        since_step=one.since_step,
        steps=one.seen_steps,
        own_us=one.own_us,
        peers_us=one.peers_us,
    )
    # What is found about a node as a whole lasts, and would not come and go.
    witness = hear(findings, place, is_shared_by_mates=False)
    named = name_cause(SlowCase(excess, one.own, one.peers_signals, witness))
    first, *more = named.evidence
    return replace(named, evidence=(f"then {first}", *more))


def _how_often(one: Recurring) -> str:
    """`every 10th step or so takes 500 ms longer than usual, 14 times in the last 140 steps`."""
    times = f"{one.times} times in the last {one.seen_steps} steps"
    longer_us = one.own_us - one.peers_us
    if one.is_short:
        which = f"every {_ordinal(round(one.apart))} step or so takes"
        longer = span(longer_us * one.lasts / 1e6)
    else:
        which = f"about {one.lasts:.0f} steps in {one.apart:.0f} take"
        longer = f"{span(longer_us / 1e6)} each"
    return f"{which} {longer} longer than usual, {times}, and its peers' don't"


def _ordinal(number: int) -> str:
    ending = (
        "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number}{ending}"


# What ranks do rarely, evaluating or saving, while the others wait: a pause of theirs, where the
# others do nothing of the kind.

LEAST = 0.2
"""Of a usual step's own time, in the mean over a frame."""

ROOM = 64
"""Frames by which the usual step is known."""


class RankPause(NamedTuple):
    """One rank's in one frame, microseconds of a step in the mean over it."""

    rank: int
    kind: SpellKind
    beyond_us: float
    """What it takes longer than the middle one of its role."""


def pauses(frame: StepFrame, ranks: Sequence[int], usual_us: float) -> Iterator[RankPause]:
    """Those of a role in which few pause; where many do, it is nobody's."""
    told = [rank for rank in ranks if rank in frame.rare or rank in frame.lines]
    if len(told) < 2:
        return
    took = sorted(frame.rare[rank].lost_us if rank in frame.rare else 0.0 for rank in told)
    middle_us = took[(len(took) - 1) // 2]
    long = [
        rank
        for rank in told
        if rank in frame.rare and frame.rare[rank].lost_us - middle_us > LEAST * usual_us
    ]
    if len(long) > max(1, len(told) // 4):
        return
    for rank in long:
        rare = frame.rare[rank]
        kind = SpellKind.EVALUATING if 2 * rare.evaluated_us > rare.lost_us else SpellKind.SAVING
        yield RankPause(rank, kind, rare.lost_us - middle_us)


@dataclass
class JobWaiting:
    """What the job's steps take beyond the usual: a pause costs no more than the others waited for
    it, in the same frame or, where they met only in the next step, in the next one."""

    _totals_us: deque[float] = field(default_factory=lambda: deque(maxlen=ROOM))
    _owing: list[tuple[SlowSpell, float, bool]] = field(default_factory=list)
    """Spells of the frame before, and what nobody was seen to wait of them so far."""
    _beyond_us: float = 0.0

    def follow(self, total_us: float, steps: int) -> None:
        """One more frame."""
        usual_us = statistics.median(self._totals_us) if self._totals_us else total_us
        self._totals_us.append(total_us)
        self._beyond_us = max(0.0, total_us - usual_us) * steps
        for spell, owed_us, is_told in self._owing:
            self._pay(spell, owed_us, is_told)
        self._owing = []

    def charge(self, spell: SlowSpell, beyond_us: float, is_told: bool) -> None:
        """A pause in this frame, all its steps together. is_told: its rank is, for pausing."""
        owed_us = beyond_us - self._pay(spell, beyond_us, is_told)
        if owed_us > 0:
            self._owing.append((spell, owed_us, is_told))

    def _pay(self, spell: SlowSpell, owed_us: float, is_told: bool) -> float:
        paid_us = min(owed_us, self._beyond_us)
        self._beyond_us -= paid_us
        spell.saved_us += paid_us
        spell.untold_us += 0.0 if is_told else paid_us
        return paid_us


# Whose own times vary from step to step, by themselves and not beside others': of a few ranks one
# that does makes all seem to, as they are compared with it.

KEPT = 32
"""Frames."""

FEWEST = 6

MOST_RANKS = 8
"""Of more, the median of the others is nobody's in particular."""


class Restlessness:
    """Of one role's ranks."""

    def __init__(self) -> None:
        self._times: dict[int, deque[float]] = {}

    def take(self, ranks: Sequence[int], own_us: Sequence[float]) -> None:
        """One frame: own times, work taken into account."""
        if len(ranks) > MOST_RANKS:
            self._times.clear()
            return
        before = self._times
        self._times = {rank: before.get(rank) or deque(maxlen=KEPT) for rank in ranks}
        for rank, us in zip(ranks, own_us, strict=True):
            self._times[rank].append(math.log(max(us, 1.0)))

    def beyond(self, least: float) -> Mapping[int, float]:
        """Rank -> by which part its times vary, where that is more than so much."""
        known = {rank: _varies(past) for rank, past in self._times.items() if len(past) > FEWEST}
        return {rank: sigma for rank, sigma in known.items() if sigma > least}


def _varies(logs: Iterable[float]) -> float:
    sizes = sorted(abs(after - before) for before, after in pairwise(logs))
    return math.expm1(MAD_TO_SIGMA * sizes[len(sizes) // 2] / math.sqrt(2.0))
