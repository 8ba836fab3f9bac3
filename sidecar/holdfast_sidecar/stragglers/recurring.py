"""Whether a rank's spells are worth a word: they come again and again, cost the job enough, and are
no chance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from holdfast_sidecar.stragglers.chance import HICCUPS, Chance
from holdfast_sidecar.stragglers.signals import Signals
from holdfast_sidecar.stragglers.spells import Kind, Spell, Spells

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
    kind: Kind
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

    def is_over(self, step: int, newest: Spell) -> bool:
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
    is_sure = is_told or spells.kind is not Kind.WORK
    choices = [
        seen[first:]
        for first in _worth_it(seen, least)
        if is_sure or not chance.explains(seen[first:], ranks, judged)
    ]
    return _recurring(spells, max(choices, key=_density), ranks) if choices else None


def _density(seen: Sequence[Spell]) -> float:
    """How much more often they come than hiccups (log likelihood ratio): less with a hiccup in it
    that the rank had long before its trouble began."""
    times = len(seen) - 1
    by_chance = HICCUPS * max(1, seen[-1].after_step - seen[0].after_step)
    return times * math.log(times / by_chance) - times + by_chance


def _worth_it(seen: Sequence[Spell], least: float) -> Iterator[int]:
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


def costs_enough(seen: Sequence[Spell]) -> bool:
    """Whether those but the newest cost the job enough, from the first to the newest."""
    step_us, costs_us = _per_step(seen)
    return costs_us >= COSTS * (step_us - costs_us)


def _per_step(seen: Sequence[Spell]) -> tuple[float, float]:
    """What a step takes in the mean, and what the spells cost of it: from the first one's beginning
    to that of the newest, so that as many ways from one to the next are in it as spells."""
    steps = max(1, seen[-1].after_step - seen[0].after_step)
    lasted_us = seen[-1].began_us - seen[0].began_us
    return lasted_us / steps, sum(one.saved_us for one in seen[:-1]) / steps


def _recurring(spells: Spells, seen: Sequence[Spell], ranks: int) -> Recurring:
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
