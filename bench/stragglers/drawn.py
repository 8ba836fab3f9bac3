"""Scenarios drawn from a seed: those for tuning and those for the report have little in common.

Neither a seed, nor a tail, a rate of hiccups, a slowdown beyond the goal's own 10 %, nor, where
somebody is slow, a layout. Once a job of the report was looked at to mend the detector, its seeds
are spent, and all move on: those from one million on are, for an alarm in a healthy job.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from bench.stragglers.scenario import Fault, Layout, Scenario
from holdfast_sidecar.records.steps import SlowCause

CAUSES = (
    SlowCause.COMPUTE,
    SlowCause.GPU_CLOCK,
    SlowCause.GPU_LINK,
    SlowCause.CPU_QUOTA,
    SlowCause.CPU_CONTENTION,
    SlowCause.MEMORY_PRESSURE,
    SlowCause.COLLECTOR,
    SlowCause.DATA_LOADING,
    SlowCause.STORAGE,
)
"""Those that make a rank's own time longer."""

SIGMAS = (0.01, 0.05)


@dataclass(frozen=True)
class Realm:
    """What scenarios are drawn from."""

    seeds: range
    layouts: Sequence[Layout]
    small: Sequence[Layout]
    """With roles of two and three ranks."""
    slowdowns: Sequence[float]
    tails: Sequence[float]
    """Degrees of freedom of Student's t; 0: normal."""
    memories: Sequence[float]
    hiccups: Sequence[float]
    lengths: Sequence[float]


TUNING = Realm(
    seeds=range(100_000),
    layouts=(
        Layout(8),
        Layout(4, 2, 2),
        Layout(16, 2),
        Layout(8, 4, 4),
        Layout(32, 4, 2),
        Layout(32, 8, 4),
        Layout(128, 8, 4),
    ),
    small=(Layout(2), Layout(3), Layout(2, 1, 4)),
    slowdowns=(0.1, 0.12, 0.15, 0.25, 0.4),
    tails=(3.0, 5.0, 0.0),
    memories=(0.0, 0.3, 0.4),
    hiccups=(0.0, 0.002),
    lengths=(0.2, 0.5),
)

HELD_OUT = Realm(
    seeds=range(2_000_000, 3_000_000),
    layouts=(
        Layout(4, 2),
        Layout(2, 2, 2),
        Layout(64),
        Layout(16, 4, 2),
        Layout(16, 8, 4),
        Layout(64, 8, 2),
        Layout(64, 8, 8),
    ),
    small=(Layout(2, 1, 2), Layout(3, 1, 2), Layout(2, 1, 8)),
    slowdowns=(0.1, 0.11, 0.13, 0.2, 0.3, 0.5),
    tails=(3.5, 4.0),
    memories=(0.2, 0.3),
    hiccups=(0.001, 0.0015),
    lengths=(0.3, 0.4),
)

ONSET = (46, 60)
AFTER = 30
"""Steps that are followed from the onset on."""


def with_fault(realm: Realm, layout: Layout, number: int) -> Scenario:
    """The so-manieth job in which somebody becomes slow."""
    seed = realm.seeds[number * 10 + (*realm.layouts, *realm.small).index(layout)]
    draw = random.Random(seed)
    since = draw.randint(*ONSET)
    faults = [
        Fault(draw.choice(CAUSES), ranks, draw.choice(realm.slowdowns), since)
        for ranks in _victims(draw, layout)
    ]
    return Scenario(
        seed=seed,
        layout=layout,
        sigma=draw.uniform(*SIGMAS),
        tail=draw.choice(realm.tails),
        memory=draw.choice(realm.memories),
        hiccups=draw.choice(realm.hiccups),
        lengths=draw.choice(realm.lengths) if draw.random() < 0.25 else 0.0,
        faults=tuple(faults),
    )


def _victims(draw: random.Random, layout: Layout) -> list[tuple[int, ...]]:
    """One rank, in larger jobs perhaps two of them or a whole node."""
    kind = draw.random() if layout.ranks >= 32 else 0.0
    if kind > 0.85 and layout.dp * layout.tp >= 4 * layout.ranks_per_node:
        first = draw.randrange(layout.ranks // layout.ranks_per_node) * layout.ranks_per_node
        return [tuple(range(first, first + layout.ranks_per_node))]
    return [(rank,) for rank in draw.sample(range(layout.ranks), 2 if kind > 0.6 else 1)]


def healthy(realm: Realm, layout: Layout, number: int, steps: int) -> Scenario:
    """The so-manieth job in which nobody is slow, and much goes on."""
    seed = realm.seeds[50_000 + number * 100 + layout.ranks % 97]
    draw = random.Random(seed)
    rank = draw.randrange(layout.ranks)
    leaves = draw.randint(steps // 4, steps // 2)
    return Scenario(
        seed=seed,
        layout=layout,
        sigma=draw.uniform(*SIGMAS),
        tail=draw.choice(realm.tails),
        memory=draw.choice(realm.memories),
        hiccups=draw.choice(realm.hiccups),
        lengths=draw.choice(realm.lengths) if draw.random() < 0.5 else 0.0,
        evaluates_every=draw.choice((0, 50, 200)),
        saves_every=draw.choice((0, 37, 100)),
        restarts=((rank, leaves, leaves + draw.choice((2, 5, 40))),),
    )
