"""Which faults a real job suffers: one after another, each on another rank, with health between.

Pure: a seed makes the plan, bench and ranks read the same one. Steps are numbered from 0.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from holdfast_sidecar.records.steps import SlowCause

WARM_UP = 60
"""Steps before the first fault: a detector has to know the job first."""

FAULTY = 16
"""Steps that a fault lasts: six more than it may take to be found."""

HEALTHY = 40
"""Steps after it: those in which it may still be told, and some to be well in."""

OWN_S = 0.2
"""What a rank does itself in a step; long beside what a shared machine keeps a sleeper waiting."""


@dataclass(frozen=True)
class Episode:
    """One fault; `slowdown` 0.3: 30 % of its usual own time more. Steps `since` up to `until`."""

    cause: str
    rank: int
    slowdown: float
    since: int
    until: int

    def strikes(self, rank: int, step: int) -> bool:
        return self.rank == rank and self.since <= step < self.until


@dataclass(frozen=True)
class Plan:
    """All that the ranks of a job need to know."""

    seed: int
    ranks: int
    steps: int
    episodes: tuple[Episode, ...] = ()
    lengths: float = 0.05
    """By which work varies from step to step and rank to rank (of its logarithm, deviation)."""
    jitter: float = 0.02
    """By which the rest varies."""
    evaluates_every: int = 0
    saves_every: int = 0
    gradient_bytes: int = 16 << 10
    own_s: float = OWN_S
    groups: dict[str, str] = field(default_factory=dict)
    """rank -> directory of the control group that its CPU quota is set in; none: of no rank."""

    def spell(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Plan:
        fields = json.loads(text)
        fields["episodes"] = tuple(Episode(**one) for one in fields["episodes"])
        return cls(**fields)


def plan(
    seed: int,
    ranks: int,
    causes: Sequence[SlowCause],
    slowdowns: Sequence[float],
    runs: int,
) -> Plan:
    """So many runs of every cause and slowdown, in an order that nothing follows from."""
    chance = random.Random(seed)
    wanted = [(cause, slowdown) for cause in causes for slowdown in slowdowns] * runs
    chance.shuffle(wanted)
    episodes: list[Episode] = []
    since, before = WARM_UP, -1
    for cause, slowdown in wanted:
        rank = chance.choice([rank for rank in range(ranks) if rank != before])
        episodes.append(Episode(cause.value, rank, slowdown, since, since + FAULTY))
        since += FAULTY + HEALTHY + chance.randrange(8)
        before = rank
    return Plan(seed, ranks, since, tuple(episodes))
