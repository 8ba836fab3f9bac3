"""Programs and faults by chance: whoever did wrong is named, and nobody who only waited."""

from __future__ import annotations

import random

import pytest
from tests.unit.policy.pretend_collectives import WORLD, Fault, make_program, run

from holdfast_sidecar.ranks.deadlock import judge

STEPS = 8
SEEDS = range(25)


@pytest.mark.parametrize("kind", ["absent", "mute", "skip", "other"])
def test_the_one_that_did_wrong_is_named_over_all_groups_and_depths(kind: str) -> None:
    for seed in SEEDS:
        chance = random.Random(seed)
        program = make_program(seed, STEPS)
        calls = len(program) // STEPS
        at = chance.randrange(4 * calls, 6 * calls)
        fault = Fault(kind, chance.randrange(WORLD), at)
        traces = run(program, fault, depth=chance.choice((1, 1, 2, 4)))
        found = judge(traces, set(), WORLD)
        assert found is not None, (seed, fault)
        assert found.culprits == (fault.rank,), (seed, fault, found)
        assert fault.rank not in found.waiting, (seed, fault, found)


def test_a_program_that_all_ranks_follow_to_its_end_keeps_nobody_waiting() -> None:
    for seed in SEEDS:
        program = make_program(seed, STEPS)
        nothing = Fault("absent", 0, len(program))
        assert judge(run(program, nothing, depth=2), set(), WORLD) is None
