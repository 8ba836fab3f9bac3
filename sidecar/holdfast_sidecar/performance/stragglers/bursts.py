"""Ranks that are slow in some steps only, again and again: every fourth batch comes late, every
eighth step has a garbage collection in it, every fiftieth an evaluation by one rank alone. The
detector rightly passes over single slow steps; that they come back is looked for here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from holdfast_sidecar.performance.stragglers.frame import GroupMembership, StepFrame
from holdfast_sidecar.performance.stragglers.peers import RolePace
from holdfast_sidecar.performance.stragglers.placement import RankPlace
from holdfast_sidecar.performance.stragglers.recurring import (
    COSTS,
    TIMES,
    JobWaiting,
    Recurring,
    costs_enough,
    pauses,
    weigh,
)
from holdfast_sidecar.performance.stragglers.signals import SAMPLE, Signals, middle, read
from holdfast_sidecar.performance.stragglers.spells import Chance, SlowSpell, SpellKind, Spells
from holdfast_sidecar.performance.stragglers.step_model import StepModel
from holdfast_sidecar.performance.stragglers.workload import EvenWork, Yardstick
from holdfast_sidecar.records.steps import StepLine

# How ranks that may be told for their long steps fare between them. Who is slow there as well is
# slow all the time: the detector's to judge.

FRAMES = 16
"""Without a burst, that make a mean."""


@dataclass
class _Fares:
    """Of frames without a burst: a rank's own time beyond its peers', as a part of it."""

    role: str
    beyond: float = 0.0
    _frames: int = 0

    def take(self, beyond: float) -> None:
        self._frames = min(FRAMES, self._frames + 1)
        self.beyond += (beyond - self.beyond) / self._frames


@dataclass
class BetweenBursts:
    """Of those that are watched."""

    _ranks: dict[int, _Fares] = field(default_factory=dict)

    def watch(self, rank: int, role: str) -> None:
        """This one too, which is of that role."""
        if rank in self._ranks:
            self._ranks[rank].role = role
        else:
            self._ranks[rank] = _Fares(role)

    def watches(self, rank: int) -> bool:
        """Whether it is one of them."""
        return rank in self._ranks

    def follow(
        self,
        role: str,
        lines: Mapping[int, StepLine],
        yardstick: Yardstick,
        usual_us: float,
        limit_us: float,
    ) -> dict[int, float]:
        """One more frame of this role; rank -> what it took of those that are late again."""
        late = {}
        for rank, fares in self._ranks.items():
            if fares.role == role and rank in lines:
                own = yardstick(lines[rank])
                if own > limit_us:
                    late[rank] = own
                else:
                    fares.take(own / usual_us - 1.0)
        return late

    def is_slow(self, rank: int) -> bool:
        """Whether it is slow then, too, as far as it is known."""
        fares = self._ranks.get(rank)
        return fares is not None and fares.beyond > COSTS

    def forget(self, is_over: Callable[[int], bool]) -> None:
        """Watch those no more."""
        self._ranks = {rank: one for rank, one in self._ranks.items() if not is_over(rank)}


# Who of a role takes long in a frame, and what the job would be quicker without that.

MOST_LATE = 4
"""Where more than one rank of so many is late at once, it is nobody's burst; one always may be."""


class RolePart(NamedTuple):
    """Of a frame, what is one role's."""

    role: str
    ranks: Sequence[int]
    """All of the role."""
    there: Sequence[int]
    """Those of them that told of it."""
    frame: StepFrame
    model: StepModel

    @property
    def steps(self) -> int:
        """How many it is of."""
        return self.frame.step - self.frame.after_step


class Burst(NamedTuple):
    """One rank's; microseconds of a step, in the mean over the frame."""

    rank: int
    beyond_us: float
    """Than usual."""
    saved_us: float
    """What the job would have been quicker without."""


class LateRank(NamedTuple):
    """Who is late in a frame."""

    bursts: Sequence[Burst] = ()
    peers: Signals | None = None
    """Of those that are not."""


@dataclass
class RoleBursts:
    """Follows one role."""

    chance: Chance
    usual_us: float = 0.0
    """Own time of its usual step; 0: not known yet."""
    _pace: RolePace = field(default_factory=RolePace)

    def follow(self, part: RolePart, work: EvenWork, between: BetweenBursts) -> LateRank:
        """One more frame."""
        lines, ranks = part.frame.lines, part.there
        if len(ranks) < 2:
            return LateRank()
        some = [lines[rank] for rank in ranks[:: max(1, len(ranks) // SAMPLE)]]
        yardstick = work.yardstick(part.role, some)
        found = self._pace.follow(map(yardstick, some)) if yardstick else None
        if yardstick is None or found is None:
            return LateRank()
        self.usual_us, limit_us = found
        late = between.follow(part.role, lines, yardstick, self.usual_us, limit_us)
        late |= _beyond(part, yardstick, limit_us)
        if not late or len(late) > max(1, len(ranks) // MOST_LATE):
            return LateRank()
        peers = middle([line for line in some if line.rank not in late])
        return LateRank(self._bursts(part, late), peers)

    def _bursts(self, part: RolePart, late: Mapping[int, float]) -> list[Burst]:
        own, model = part.model.own, part.model
        quick = {rank: own[rank] - us + self.usual_us for rank, us in late.items()}
        saved_us = max(0.0, model.total_us - model.without(quick))
        # Shared out by how long each was late.
        saved_us /= sum(late.values()) - len(late) * self.usual_us
        beyond = ((rank, us - self.usual_us) for rank, us in late.items())
        return [Burst(rank, us, saved_us * us) for rank, us in beyond]


def _beyond(part: RolePart, yardstick: Yardstick, limit_us: float) -> dict[int, float]:
    """Rank -> what it took, of those that took longer than that also had work been even."""
    own, lines = part.model.own, part.frame.lines
    if max(map(own.__getitem__, part.there)) <= limit_us:
        return {}
    suspects = [lines[rank] for rank in part.there if own[rank] > limit_us]
    return {line.rank: us for line in suspects if (us := yardstick(line)) > limit_us}


SOON_STEPS = 64
"""After one burst another: it is asked how a rank fares between them. Of healthy ranks few have two
of their hiccups so near to each other."""

QUIET_STEPS = 256
"""Without a burst: it is asked no more how it fares between them."""

Key = tuple[int, SpellKind]


@dataclass
class Bursts:
    """Follows one attempt."""

    _spells: dict[Key, Spells] = field(default_factory=dict)
    _between: BetweenBursts = field(default_factory=BetweenBursts)
    """Of ranks that may be told."""
    _told: dict[Key, Recurring] = field(default_factory=dict)
    _roles: dict[str, RoleBursts] = field(default_factory=dict)
    _census: GroupMembership = field(default_factory=GroupMembership)
    _waiting: JobWaiting = field(default_factory=JobWaiting)
    _lasted_us: float = 0.0
    """What all steps so far took."""
    _judged: int = 1
    """Ranks there are."""

    def follow(
        self,
        frame: StepFrame,
        places: Mapping[int, RankPlace],
        model: StepModel,
        work: EvenWork,
        told: Collection[int] = (),
    ) -> tuple[Recurring, ...]:
        """Those who are slow again and again, and well between. told: who is told slow anyway."""
        self._census.read(places)
        self._judged = len(places)
        self._waiting.follow(model.total_us, frame.step - frame.after_step)
        grown: list[Key] = []
        is_complete = model.own.keys() >= places.keys()
        for name, ranks in self._census.by_role.items():
            if len(ranks) > 1:
                there = ranks if is_complete else [rank for rank in ranks if rank in model.own]
                part = RolePart(name, ranks, there, frame, model)
                grown += self._look(part, work, told)
                grown += self._look_at_pauses(part)
        self._lasted_us += model.total_us * (frame.step - frame.after_step)
        for key in grown:
            self._weigh(key)
        self._forget(frame, places)
        return self._tell()

    def _look(self, part: RolePart, work: EvenWork, told: Collection[int]) -> list[Key]:
        role = self._roles.get(part.role)
        if role is None:
            role = self._roles[part.role] = RoleBursts(Chance(part.frame.after_step))
        found = role.follow(part, work, self._between)
        grown = []
        for burst in found.bursts:
            key = (burst.rank, SpellKind.WORK)
            is_told = burst.rank in told or key in self._told
            own = read(part.frame.lines[burst.rank])
            self._grow(key, part.role, self._spell(part, burst, is_told), own, found.peers)
            grown.append(key)
        return grown

    def _look_at_pauses(self, part: RolePart) -> list[Key]:
        usual_us = self._roles[part.role].usual_us
        if not part.frame.rare or not usual_us:
            return []
        grown = []
        for pause in pauses(part.frame, part.ranks, usual_us):
            key = (pause.rank, pause.kind)
            burst = Burst(pause.rank, pause.beyond_us, 0.0)
            spell = self._grow(key, part.role, self._spell(part, burst, is_told=True), None, None)
            self._waiting.charge(spell, pause.beyond_us * part.steps, is_told=key in self._told)
            grown.append(key)
        return grown

    def _spell(self, part: RolePart, burst: Burst, is_told: bool) -> SlowSpell:
        """Of one frame."""
        saved_us = burst.saved_us * part.steps
        return SlowSpell(
            burst.rank,
            part.frame.after_step,
            part.frame.step,
            self._lasted_us,
            self._roles[part.role].usual_us,
            burst.beyond_us * part.steps,
            saved_us,
            0.0 if is_told else saved_us,
        )

    def _grow(
        self, key: Key, role: str, spell: SlowSpell, own: Signals | None, peers: Signals | None
    ) -> SlowSpell:
        spells = self._spells.get(key)
        if spells is None or spells.role != role:
            spells = self._spells[key] = Spells(key[1], role)
        spells.forget(spell.step)
        newest = spells.grow(spell, own, peers)
        if newest is spell and key[1] is SpellKind.WORK:
            self._roles[role].chance.note(spell)
        return newest

    def _weigh(self, key: Key) -> None:
        rank, kind = key
        spells, before = self._spells[key], self._told.get(key)
        if kind is SpellKind.WORK and (self._between.watches(rank) or _may_be_told(spells)):
            self._between.watch(rank, spells.role)
        ranks = len(self._census.by_role[spells.role])
        chance = self._roles[spells.role].chance
        found = weigh(spells, chance, ranks, self._judged, before is not None)
        if found is None or self._between.is_slow(rank):
            self._told.pop(key, None)
        elif before is None:
            self._told[key] = replace(found, owed_us=spells.settle(found.since_step))
        else:
            since = min(before.since_step, found.since_step)
            self._told[key] = replace(found, since_step=since)

    def _tell(self) -> tuple[Recurring, ...]:
        """Of each rank what costs the most; what is owed is told once."""
        dearest: dict[int, Recurring] = {}
        for one in sorted(self._told.values(), key=lambda one: one.costs_us):
            dearest[one.rank] = one
        for key in self._told:
            self._told[key] = replace(self._told[key], owed_us=0.0)
        return tuple(dearest.values())

    def _forget(self, frame: StepFrame, places: Mapping[int, RankPlace]) -> None:
        for key, one in list(self._told.items()):
            if key[0] not in places or one.is_over(frame.step, self._spells[key].seen[-1]):
                del self._told[key]

        def is_over(rank: int) -> bool:
            key = (rank, SpellKind.WORK)
            last = self._spells[key].seen[-1].step
            return key not in self._told and last < frame.step - QUIET_STEPS

        self._between.forget(is_over)


def _may_be_told(spells: Spells) -> bool:
    newest = list(spells.seen)[-(TIMES - 1) :]
    if len(newest) > 1 and newest[-1].after_step - newest[-2].after_step <= SOON_STEPS:
        return True
    return len(newest) == TIMES - 1 and costs_enough(newest)
