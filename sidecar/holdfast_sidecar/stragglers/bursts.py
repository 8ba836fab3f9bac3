"""Ranks that are slow in some steps only, again and again: every fourth batch comes late, every
eighth step has a garbage collection in it, every fiftieth an evaluation by one rank alone. The
detector rightly passes over single slow steps; that they come back is looked for here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from holdfast_sidecar.stragglers.census import Census
from holdfast_sidecar.stragglers.chance import Chance
from holdfast_sidecar.stragglers.even_work import EvenWork, Yardstick
from holdfast_sidecar.stragglers.frame import Frame
from holdfast_sidecar.stragglers.pauses import Waiting, pauses
from holdfast_sidecar.stragglers.place import Place
from holdfast_sidecar.stragglers.recurring import COSTS, TIMES, Recurring, costs_enough, weigh
from holdfast_sidecar.stragglers.role_pace import RolePace
from holdfast_sidecar.stragglers.signals import SAMPLE, Signals, middle, read
from holdfast_sidecar.stragglers.spells import Kind, Spell, Spells
from holdfast_sidecar.stragglers.step_model import StepModel

MOST_LATE = 4
"""Where more than one rank of so many is late at once, it is nobody's burst; one always may be."""

BETWEEN = 16
"""Frames without a burst that make a mean."""

SOON_STEPS = 64
"""After one burst another: it is asked how a rank fares between them. Of healthy ranks few have two
of their hiccups so near to each other."""

QUIET_STEPS = 256
"""Without a burst: it is asked no more how it fares between them."""

Key = tuple[int, Kind]


@dataclass
class _Role:
    chance: Chance
    pace: RolePace = field(default_factory=RolePace)
    usual_us: float = 0.0


@dataclass
class _Between:
    """Of frames without a burst: a rank's own time beyond its peers', as a part of it."""

    beyond: float = 0.0
    _frames: int = 0

    def take(self, beyond: float) -> None:
        self._frames = min(BETWEEN, self._frames + 1)
        self.beyond += (beyond - self.beyond) / self._frames


@dataclass
class Bursts:
    """Follows one attempt."""

    _spells: dict[Key, Spells] = field(default_factory=dict)
    _between: dict[int, _Between] = field(default_factory=dict)
    """Rank that may be told -> how it fares between its bursts."""
    _told: dict[Key, Recurring] = field(default_factory=dict)
    _roles: dict[str, _Role] = field(default_factory=dict)
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
                role = self._role(name, frame)
                there = ranks if is_complete else [rank for rank in ranks if rank in model.own]
                if len(there) > 1:
                    grown += self._look(name, role, there, frame, model, work, told)
                if frame.rare and role.usual_us:
                    grown += self._look_at_pauses(name, role, ranks, frame)
        self._lasted_us += model.total_us * (frame.step - frame.after_step)
        for key in grown:
            self._weigh(key)
        self._forget(frame, places)
        return self._tell()

    def _role(self, name: str, frame: Frame) -> _Role:
        if name not in self._roles:
            self._roles[name] = _Role(Chance(frame.after_step))
        return self._roles[name]

    def _look(
        self,
        name: str,
        role: _Role,
        ranks: Sequence[int],
        frame: Frame,
        model: StepModel,
        work: EvenWork,
        told: Collection[int],
    ) -> list[Key]:
        own, lines = model.own, frame.lines
        some = [lines[rank] for rank in ranks[:: max(1, len(ranks) // SAMPLE)]]
        yardstick = work.yardstick(name, some)
        found = role.pace.follow(map(yardstick, some)) if yardstick else None
        if yardstick is None or found is None:
            return []
        role.usual_us, limit = found
        late = self._look_between(name, frame, yardstick, role.usual_us, limit)
        if max(map(own.__getitem__, ranks)) > limit:
            suspects = [rank for rank in ranks if own[rank] > limit]
            late |= {r: mine for r in suspects if (mine := yardstick(lines[r])) > limit}
        if not late or len(late) > max(1, len(ranks) // MOST_LATE):
            return []
        peers = middle([line for line in some if line.rank not in late])
        quick = {rank: own[rank] - mine + role.usual_us for rank, mine in late.items()}
        saved_us = max(0.0, model.total_us - model.without(quick))
        saved_us /= sum(late.values()) - len(late) * role.usual_us
        for rank, mine in late.items():
            beyond_us = mine - role.usual_us
            is_told = rank in told or (rank, Kind.WORK) in self._told
            spell = self._spell(rank, role, frame, beyond_us, saved_us * beyond_us, is_told)
            self._grow((rank, Kind.WORK), name, spell, read(lines[rank]), peers)
        return [(rank, Kind.WORK) for rank in late]

    def _look_at_pauses(
        self, name: str, role: _Role, ranks: Sequence[int], frame: Frame
    ) -> list[Key]:
        grown = []
        for pause in pauses(frame, ranks, role.usual_us):
            key = (pause.rank, pause.kind)
            spell = self._spell(pause.rank, role, frame, pause.beyond_us, 0.0, is_told=True)
            spell = self._grow(key, name, spell, None, None)
            beyond_us = pause.beyond_us * (frame.step - frame.after_step)
            self._waiting.charge(spell, beyond_us, is_told=key in self._told)
            grown.append(key)
        return grown

    def _spell(
        self,
        rank: int,
        role: _Role,
        frame: Frame,
        beyond_us: float,
        saved_us: float,
        is_told: bool,
    ) -> Spell:
        steps = frame.step - frame.after_step
        return Spell(
            rank,
            frame.after_step,
            frame.step,
            self._lasted_us,
            role.usual_us,
            beyond_us * steps,
            saved_us * steps,
            0.0 if is_told else saved_us * steps,
        )

    def _grow(
        self, key: Key, name: str, spell: Spell, own: Signals | None, peers: Signals | None
    ) -> Spell:
        spells = self._spells.get(key)
        if spells is None or spells.role != name:
            spells = self._spells[key] = Spells(key[1], name)
        spells.forget(spell.step)
        newest = spells.grow(spell, own, peers)
        if newest is spell and key[1] is Kind.WORK:
            self._roles[name].chance.note(spell)
        return newest

    def _look_between(
        self, name: str, frame: Frame, yardstick: Yardstick, usual: float, limit: float
    ) -> dict[int, float]:
        """How those who may be told fare otherwise; and what they take that are late again."""
        late = {}
        for rank, between in self._between.items():
            spells = self._spells[rank, Kind.WORK]
            if spells.role == name and rank in frame.lines:
                own = yardstick(frame.lines[rank])
                if own > limit:
                    late[rank] = own
                else:
                    between.take(own / usual - 1.0)
        return late

    def _weigh(self, key: Key) -> None:
        rank, kind = key
        spells, before = self._spells[key], self._told.get(key)
        if kind is Kind.WORK and _may_be_told(spells):
            self._between.setdefault(rank, _Between())
        ranks = len(self._census.by_role[spells.role])
        chance = self._roles[spells.role].chance
        found = weigh(spells, chance, ranks, self._judged, before is not None)
        if found is None or (rank in self._between and self._between[rank].beyond > COSTS):
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
        for rank in list(self._between):
            key = (rank, Kind.WORK)
            if key not in self._told and self._spells[key].seen[-1].step < frame.step - QUIET_STEPS:
                del self._between[rank]


def _may_be_told(spells: Spells) -> bool:
    newest = list(spells.seen)[-(TIMES - 1) :]
    if len(newest) > 1 and newest[-1].after_step - newest[-2].after_step <= SOON_STEPS:
        return True
    return len(newest) == TIMES - 1 and costs_enough(newest)
