"""Ranks that are slow in some steps only, again and again: every fourth batch comes late, every
eighth step has a garbage collection in it, every fiftieth an evaluation by one rank alone. The
detector rightly passes over single slow steps; that they come back is looked for here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from holdfast_sidecar.stragglers.between_bursts import BetweenBursts
from holdfast_sidecar.stragglers.census import Census
from holdfast_sidecar.stragglers.chance import Chance
from holdfast_sidecar.stragglers.even_work import EvenWork
from holdfast_sidecar.stragglers.frame import Frame
from holdfast_sidecar.stragglers.pauses import Waiting, pauses
from holdfast_sidecar.stragglers.place import Place
from holdfast_sidecar.stragglers.recurring import TIMES, Recurring, costs_enough, weigh
from holdfast_sidecar.stragglers.role_bursts import Burst, Part, RoleBursts
from holdfast_sidecar.stragglers.signals import Signals, read
from holdfast_sidecar.stragglers.spells import Kind, Spell, Spells
from holdfast_sidecar.stragglers.step_model import StepModel

SOON_STEPS = 64
"""After one burst another: it is asked how a rank fares between them. Of healthy ranks few have two
of their hiccups so near to each other."""

QUIET_STEPS = 256
"""Without a burst: it is asked no more how it fares between them."""

Key = tuple[int, Kind]


@dataclass
class Bursts:
    """Follows one attempt."""

    _spells: dict[Key, Spells] = field(default_factory=dict)
    _between: BetweenBursts = field(default_factory=BetweenBursts)
    """Of ranks that may be told."""
    _told: dict[Key, Recurring] = field(default_factory=dict)
    _roles: dict[str, RoleBursts] = field(default_factory=dict)
    _census: Census = field(default_factory=Census)
    _waiting: Waiting = field(default_factory=Waiting)
    _lasted_us: float = 0.0
    """What all steps so far took."""
    _judged: int = 1
    """Ranks there are."""

    def follow(
        self,
        frame: Frame,
        places: Mapping[int, Place],
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
                part = Part(name, ranks, there, frame, model)
                grown += self._look(part, work, told)
                grown += self._look_at_pauses(part)
        self._lasted_us += model.total_us * (frame.step - frame.after_step)
        for key in grown:
            self._weigh(key)
        self._forget(frame, places)
        return self._tell()

    def _look(self, part: Part, work: EvenWork, told: Collection[int]) -> list[Key]:
        role = self._roles.get(part.role)
        if role is None:
            role = self._roles[part.role] = RoleBursts(Chance(part.frame.after_step))
        found = role.follow(part, work, self._between)
        grown = []
        for burst in found.bursts:
            key = (burst.rank, Kind.WORK)
            is_told = burst.rank in told or key in self._told
            own = read(part.frame.lines[burst.rank])
            self._grow(key, part.role, self._spell(part, burst, is_told), own, found.peers)
            grown.append(key)
        return grown

    def _look_at_pauses(self, part: Part) -> list[Key]:
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

    def _spell(self, part: Part, burst: Burst, is_told: bool) -> Spell:
        """Of one frame."""
        saved_us = burst.saved_us * part.steps
        return Spell(
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
        self, key: Key, role: str, spell: Spell, own: Signals | None, peers: Signals | None
    ) -> Spell:
        spells = self._spells.get(key)
        if spells is None or spells.role != role:
            spells = self._spells[key] = Spells(key[1], role)
        spells.forget(spell.step)
        newest = spells.grow(spell, own, peers)
        if newest is spell and key[1] is Kind.WORK:
            self._roles[role].chance.note(spell)
        return newest

    def _weigh(self, key: Key) -> None:
        rank, kind = key
        spells, before = self._spells[key], self._told.get(key)
        if kind is Kind.WORK and (self._between.watches(rank) or _may_be_told(spells)):
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

    def _forget(self, frame: Frame, places: Mapping[int, Place]) -> None:
        for key, one in list(self._told.items()):
            if key[0] not in places or one.is_over(frame.step, self._spells[key].seen[-1]):
                del self._told[key]

        def is_over(rank: int) -> bool:
            key = (rank, Kind.WORK)
            last = self._spells[key].seen[-1].step
            return key not in self._told and last < frame.step - QUIET_STEPS

        self._between.forget(is_over)


def _may_be_told(spells: Spells) -> bool:
    newest = list(spells.seen)[-(TIMES - 1) :]
    if len(newest) > 1 and newest[-1].after_step - newest[-2].after_step <= SOON_STEPS:
        return True
    return len(newest) == TIMES - 1 and costs_enough(newest)
