"""Jobs with one trouble each, to see whether its cause is named: drawn by chance, bounded by kind.

Cases of the held-out kind are drawn from other seeds, layouts and ranges than those that thresholds
were looked at with. Pure.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from bench.stragglers.scenario import Fault, Layout, Scenario
from holdfast_sidecar.records.steps import SlowCause

TUNING = "tuning"
HELD_OUT = "held out"

CAUSES = tuple(cause for cause in SlowCause if cause is not SlowCause.UNKNOWN)

STEPS_AFTER = 30
"""So long after a fault began the verdict is read."""


@dataclass(frozen=True)
class Ranges:
    """What a kind of case is drawn from."""

    layouts: tuple[Layout, ...]
    pipelines: tuple[Layout, ...]
    sigma: tuple[float, float]
    tails: tuple[float, ...]
    memory: tuple[float, float]
    slowdown: tuple[float, float]
    first_seed: int


RANGES = {
    TUNING: Ranges(
        layouts=(Layout(dp=16), Layout(dp=8, tp=2), Layout(dp=32, ranks_per_node=4)),
        pipelines=(Layout(dp=8, tp=2, pp=2), Layout(dp=8, pp=4, ranks_per_node=4)),
        sigma=(0.01, 0.03),
        tails=(4.0, 0.0),
        memory=(0.0, 0.3),
        slowdown=(0.2, 0.6),
        first_seed=0,
    ),
    HELD_OUT: Ranges(
        layouts=(Layout(dp=24), Layout(dp=16, tp=4), Layout(dp=64), Layout(dp=12, tp=2)),
        pipelines=(Layout(dp=8, tp=4, pp=2), Layout(dp=8, pp=8), Layout(dp=16, tp=2, pp=4)),
        sigma=(0.01, 0.05),
        tails=(3.5, 5.0, 0.0),
        memory=(0.0, 0.4),
        slowdown=(0.15, 0.7),
        first_seed=1_000_000,
    ),
}


@dataclass(frozen=True)
class Case:
    """One job, its trouble, and how plainly its signals speak."""

    cause: SlowCause
    kind: str
    scenario: Scenario
    node: str = ""
    """Where the trouble is; empty: on several, or none in particular."""
    tells: float = 1.0
    """Of the time it costs, what its signal says."""
    is_found: bool = True
    """Whether a detector of the node found something about it."""
    seed: int = 0
    second: SlowCause | None = None
    """A smaller trouble of the same ranks."""
    steps: int = field(default=60)


def draw(cause: SlowCause, kind: str, number: int) -> Case:
    """The so manyth case of a cause."""
    ranges = RANGES[kind]
    seed = ranges.first_seed + 1000 * CAUSES.index(cause) + number
    chance = random.Random(seed)
    layout = _layout(cause, ranges, chance)
    since = 1 if cause is SlowCause.PIPELINE else chance.randint(30, 50)
    faults, node = _faults(cause, layout, chance, ranges, since)
    second = _second(cause, chance)
    if second is not None:
        share = chance.uniform(0.15, 0.4)
        faults += (Fault(second, faults[0].ranks, share * faults[0].slowdown, since),)
    scenario = Scenario(
        seed=seed,
        layout=layout,
        sigma=chance.uniform(*ranges.sigma),
        tail=chance.choice(ranges.tails),
        memory=chance.uniform(*ranges.memory),
        step_us=chance.choice((200_000.0, 800_000.0, 3_000_000.0)),
        lengths=chance.choice((0.0, 0.1)) if cause is not SlowCause.UNEVEN_WORK else 0.0,
        faults=faults,
    )
    return Case(
        cause,
        kind,
        scenario,
        node=node,
        tells=chance.uniform(0.7, 1.15),
        is_found=_is_found(cause, chance),
        seed=seed,
        second=second,
        steps=max(since, 30) + STEPS_AFTER,
    )


OF_NODES = (
    SlowCause.CPU_QUOTA,
    SlowCause.CPU_CONTENTION,
    SlowCause.MEMORY_PRESSURE,
    SlowCause.STORAGE,
)
"""May strike all ranks of a node; storage always does."""

DOUBLED = (
    SlowCause.CPU_QUOTA,
    SlowCause.CPU_CONTENTION,
    SlowCause.COLLECTOR,
    SlowCause.DATA_LOADING,
    SlowCause.COMPUTE,
)
"""Of which a little may come with another trouble."""

EVERY = {
    SlowCause.RECOMPILATION: (2, 3, 5),
    SlowCause.COLLECTOR: (1, 1, 2, 4),
    SlowCause.DATA_LOADING: (1, 1, 2, 4),
    SlowCause.EVALUATION: (5, 6),
    SlowCause.SAVING: (5, 6),
}
"""So many steps lie between two strikes, where it need not be each one."""

TOLD_BY_FINDING = (SlowCause.GPU_POWER, SlowCause.GPU_SHARED)
"""What a clock shows is the same as with heat, or as with nothing: only its detector knows."""


def _layout(cause: SlowCause, ranges: Ranges, chance: random.Random) -> Layout:
    if cause is SlowCause.PIPELINE:
        return chance.choice(ranges.pipelines)
    return chance.choice(ranges.layouts + ranges.pipelines)


def _faults(
    cause: SlowCause, layout: Layout, chance: random.Random, ranges: Ranges, since: int
) -> tuple[tuple[Fault, ...], str]:
    slowdown = chance.uniform(*ranges.slowdown)
    rank = chance.randrange(layout.ranks)
    node = f"node{rank // layout.ranks_per_node}"
    mates = _mates(layout, rank)
    if cause is SlowCause.LINK:
        return _of_card(layout, mates, slowdown, since), node
    if cause is SlowCause.PIPELINE:
        stage = chance.randrange(layout.pp)
        ranks = tuple(r for r in range(layout.ranks) if layout.coordinates(r)["pp"] == stage)
        return (Fault(cause, ranks, slowdown, since),), ""
    if cause is SlowCause.STORAGE or (cause in OF_NODES and chance.random() < 0.4):
        return (Fault(cause, mates, slowdown, since),), node
    every = chance.choice(EVERY.get(cause, (1,)))
    return (Fault(cause, (rank,), slowdown, since, every=every),), node


def _mates(layout: Layout, rank: int) -> tuple[int, ...]:
    first = rank // layout.ranks_per_node * layout.ranks_per_node
    return tuple(range(first, min(layout.ranks, first + layout.ranks_per_node)))


def _of_card(
    layout: Layout, mates: tuple[int, ...], slowdown: float, since: int
) -> tuple[Fault, ...]:
    """A node's network card is slow: so is every group that needs it."""
    found = {}
    for dimension in ("dp", "pp", "tp"):
        for rank in mates:
            members = tuple(layout.members(dimension, rank))
            if len({r // layout.ranks_per_node for r in members}) > 1:
                found[members] = Fault(
                    SlowCause.LINK, members, slowdown, since, dimension=dimension
                )
    return tuple(found.values())


def _second(cause: SlowCause, chance: random.Random) -> SlowCause | None:
    if cause in (SlowCause.LINK, SlowCause.PIPELINE, SlowCause.RECOMPILATION, SlowCause.STORAGE):
        return None
    others = [other for other in DOUBLED if other is not cause]
    return chance.choice(others) if chance.random() < 0.3 else None


def _is_found(cause: SlowCause, chance: random.Random) -> bool:
    return cause in TOLD_BY_FINDING or chance.random() < 0.5
