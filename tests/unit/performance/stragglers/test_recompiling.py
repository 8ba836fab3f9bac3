from __future__ import annotations

from tests.unit.performance.stragglers.told import line

from holdfast_sidecar.performance.stragglers.trouble import Recompilations, Recompiling

STEP_US = 1_000_000


def follow(compiles: set[int], lost: int = 600_000, steps: int = 60) -> tuple[Recompiling, ...]:
    seen = Recompilations()
    for step in range(1, steps + 1):
        one = line(0, step)
        if step in compiles:
            one = line(0, step, steps=0, compiled=1, lost=lost)
        seen.take([line(1, step), one])
        seen.take([one])
    return seen.judge(steps, STEP_US)


def test_a_rank_that_compiles_again_and_again_is_told_with_its_price() -> None:
    (one,) = follow(set(range(1, 60, 3)))
    assert one.rank == 0
    assert abs(one.share - 1 / 3) < 0.05
    assert abs(one.lost_us - 200_000) < 25_000


def test_the_first_steps_of_an_attempt_may_compile() -> None:
    assert follow(set(range(1, 15))) == ()


def test_a_last_batch_of_another_size_is_no_recompilation() -> None:
    assert follow({50}) == ()
    assert follow({40, 55}) == ()


def test_what_costs_next_to_nothing_is_not_told() -> None:
    assert follow(set(range(1, 60, 3)), lost=30_000) == ()


def test_it_is_over_when_nothing_was_compiled_for_a_while() -> None:
    assert follow(set(range(1, 60, 3)), steps=140) == ()
