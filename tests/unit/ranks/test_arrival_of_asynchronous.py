"""Whatever order ranks enter collectives of several groups in: a deadlock is proven, nothing else
ever is."""

from __future__ import annotations

from tests.unit.policy.asynchronous_ranks import World, make_world

from holdfast_sidecar.ranks.collectives import Arrival, StuckCause
from holdfast_sidecar.ranks.deadlock import judge

SEEDS = range(150)


def proven(world: World) -> list[Arrival]:
    """All that is ever proven while it runs, the last look not among it."""
    looks = (judge(traces, set(), len(traces)) for traces in world.run())
    return [found for found in looks if found is not None and found.is_hopeless]


def test_of_programs_that_come_to_their_end_nothing_is_ever_proven() -> None:
    ended = 0
    for seed in SEEDS:
        world = make_world(seed)
        found = proven(world)
        if world.is_through:
            ended += 1
            assert found == [], seed
    assert ended > len(SEEDS) / 4


def test_ranks_that_have_entered_groups_in_a_deadly_order_are_proven_to_wait_for_ever() -> None:
    deadlocks = 0
    for seed in SEEDS:
        world = make_world(seed)
        proven(world)
        if world.is_through:
            continue
        deadlocks += 1
        found = judge(world.traces(), set(), len(world.ranks))
        assert found is not None, seed
        assert (found.cause, found.is_hopeless) == (StuckCause.CROSSED, True), (seed, found)
        stuck = {rank.number for rank in world.ranks if any(one.deeds for one in rank.threads)}
        assert set(found.culprits) <= stuck, (seed, found)
    assert deadlocks > len(SEEDS) / 4
