"""A simulated job whose lines come as they may: late, twice, out of order, or not at all."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bench.stragglers.scenario import Layout, Scenario
from bench.stragglers.simulated_job import SimulatedJob

from holdfast_sidecar.performance.stragglers.efficiency import EfficiencyWatch
from holdfast_sidecar.performance.stragglers.judge import Judge
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.findings import Moment
from holdfast_sidecar.records.steps import Slowness, SlownessReport, StepLine, parse

LAYOUTS = (Layout(8), Layout(4, 2), Layout(2), Layout(4, 1, 2), Layout(2, 2, 2), Layout(16))

NO_SENSE = (-1, -(2**63), 10**13, 2**63, 10**300, 10**700)
"""What a clock, a torn line or an enemy says a part takes."""


@dataclass
class Garbled:
    """One job, drawn from a seed; nobody in it is slow."""

    seed: int
    judge: Judge = field(default_factory=lambda: Judge(EfficiencyWatch()))
    now_s: float = 1000.0
    changes_leader: bool = True
    _late: list[tuple[int, StepLine]] = field(default_factory=list)
    _away: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.chance = chance = random.Random(self.seed)
        scenario = Scenario(
            self.seed,
            chance.choice(LAYOUTS),
            sigma=chance.choice((0.01, 0.02)),
            hiccups=chance.choice((0.0, 0.002)),
            evaluates_every=chance.choice((0, 37)),
            saves_every=chance.choice((0, 50)),
        )
        self.job = SimulatedJob(scenario)
        self.step_s = chance.choice((0.002, 1.0, 120.0))

    def follow(self, steps: int) -> Iterator[SlownessReport]:
        """How it stands, whenever it was judged."""
        places = self.job.places()
        for now, lines in enumerate(self.job.steps(steps)):
            self._pass_time(now)
            here = {rank: place for rank, place in places.items() if rank not in self._away}
            come = self._come(now, lines)
            moment = Moment(self.now_s, 1e9 + self.now_s, "node0")
            standing = self.judge.follow(come, here, {}, (), 0, moment)
            if standing is not None:
                encode(standing)
                yield standing
                self._change_leader(standing)

    def _pass_time(self, now: int) -> None:
        """A node may have slept; ranks leave and are back."""
        self.now_s += self.step_s + (3600.0 if self.chance.random() < 0.01 else 0.0)
        self._away = {rank: back for rank, back in self._away.items() if back > now}
        if self.chance.random() < 0.02:
            rank = self.chance.randrange(self.job.layout.ranks)
            self._away[rank] = now + self.chance.randrange(1, 40)

    def _come(self, now: int, lines: Sequence[StepLine]) -> list[StepLine]:
        chance = self.chance
        for line in lines:
            if chance.random() < (0.7 if line.rank in self._away else 0.03):
                continue
            at = now + (chance.randrange(30) if chance.random() < 0.05 else 0)
            times = 2 if chance.random() < 0.05 else 1
            self._late += [(at, self._as_told(line))] * times
        come = [line for at, line in self._late if at <= now]
        self._late = [(at, line) for at, line in self._late if at > now]
        chance.shuffle(come)
        return come

    def _as_told(self, line: StepLine) -> StepLine:
        if self.chance.random() < 0.02:
            return waits_unseen(line)
        if self.chance.random() < 0.01:
            name = self.chance.choice(StepLine._fields[4:])
            told = line._replace(**{name: self.chance.choice(NO_SENSE)})
            return parse(" ".join(map(str, told))) or line
        return line

    def _change_leader(self, standing: SlownessReport) -> None:
        if self.changes_leader and self.chance.random() < 0.01:
            self.judge = Judge(EfficiencyWatch())
            self.judge.resume(standing)


def waits_unseen(line: StepLine) -> StepLine:
    """The same of a rank that can't tell waiting from its backward pass."""
    backward = line.backward + line.communicating
    return line._replace(waits_seen=0, backward=backward, communicating=0, wait_1=0)


def blamed(standings: Iterator[SlownessReport]) -> list[Slowness]:
    """All who were ever called slow."""
    return [one for standing in standings for one in standing.slow]


def remembered(thing: object, seen: set[int] | None = None) -> int:
    """How many values somebody holds, at whatever depth."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, (str, bytes, int, float, type(None))):
        return 1
    seen.add(id(thing))
    parts: list[object] = []
    if isinstance(thing, Mapping):
        parts += [*thing.keys(), *thing.values()]
    elif isinstance(thing, (list, tuple, set, frozenset, deque)):
        parts += thing
    slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    parts += [getattr(thing, name) for name in slots if hasattr(thing, name)]
    parts += getattr(thing, "__dict__", {}).values()
    return 1 + sum(remembered(part, seen) for part in parts)
