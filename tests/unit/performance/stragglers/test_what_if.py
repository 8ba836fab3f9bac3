from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from tests.unit.performance.stragglers.parallel import excess, frame, laid_out

from holdfast_sidecar.performance.stragglers.exchanges import SlowExchange
from holdfast_sidecar.performance.stragglers.frame import Excess, StepFrame
from holdfast_sidecar.performance.stragglers.placement import RankPlace
from holdfast_sidecar.performance.stragglers.what_if import WhatIfs
from holdfast_sidecar.records.steps import SlowCause, WhatIf

STEPS = 20


def gains(told: tuple[WhatIf, ...]) -> dict[str, float]:
    return {one.what: one.gain for one in told}


def follow(
    what_ifs: WhatIfs,
    one: StepFrame,
    places: Mapping[int, RankPlace],
    excesses: Sequence[Excess],
    causes: Mapping[int, SlowCause] | None = None,
    exchanges: Sequence[SlowExchange] = (),
) -> tuple[WhatIf, ...]:
    model = what_ifs.read(one, places)
    return what_ifs.follow(one, model, excesses, causes, exchanges)


def test_without_its_slow_rank_the_job_is_as_fast_as_the_next_one() -> None:
    what_ifs, places = WhatIfs(), laid_out(dp=4)
    own = {0: 130, 1: 100, 2: 100, 3: 100}
    for step in range(1, STEPS + 1):
        told = follow(what_ifs, frame(own, step, 150), places, [excess(0, 130, 100)])
    assert gains(told) == {"rank 0": 0.25}
    assert told[0].lost_s == pytest.approx(STEPS * 0.03)


def test_of_two_slow_ranks_neither_alone_makes_a_difference_and_both_do() -> None:
    what_ifs, places = WhatIfs(), laid_out(dp=4)
    own = {0: 130, 1: 130, 2: 100, 3: 100}
    slow = [excess(0, 130, 100), excess(1, 130, 100)]
    causes = {0: SlowCause.CPU_QUOTA, 1: SlowCause.CPU_QUOTA}
    told = follow(what_ifs, frame(own, 1, 150), places, slow, causes)
    assert gains(told) == {"cpu_quota": 0.25}


def test_a_cause_of_one_rank_is_told_as_that_rank() -> None:
    own, causes = {0: 130, 1: 100, 2: 100, 3: 100}, {0: SlowCause.COMPUTE}
    told = follow(WhatIfs(), frame(own, 1, 150), laid_out(dp=4), [excess(0, 130, 100)], causes)
    assert gains(told) == {"rank 0": 0.25}


def test_a_stage_that_has_more_to_do_is_shared_out_over_the_others() -> None:
    what_ifs, places = WhatIfs(), laid_out(dp=2, pp=4)
    own = dict.fromkeys(range(8), 100.0) | {6: 140.0, 7: 140.0}
    told = follow(what_ifs, frame(own, 1, 150), places, [])
    # Of 150 ms the slowest stage waits 10 in the pipeline, a thirtieth of what the others take.
    assert gains(told) == {
        "even stages": pytest.approx(150 / (150 - 30 * (1 - 1 / 30)) - 1, rel=0.01),
        "stage 3": pytest.approx(150 / (150 - 40) - 1, rel=0.01),
    }


def test_even_work_is_worth_what_the_longest_batch_costs_beyond_the_mean() -> None:
    what_ifs, places = WhatIfs(), laid_out(dp=4)
    told: tuple[WhatIf, ...] = ()
    for step in range(1, 60):
        tokens = {rank: 800 + 400 * ((rank + step) % 4 == 0) for rank in places}
        own = {rank: tokens[rank] / 10 for rank in places}
        plain = frame(own, step, 130)
        lines = {r: one._replace(tokens=tokens[r]) for r, one in plain.lines.items()}
        told = follow(what_ifs, StepFrame(step - 1, step, lines), places, [])
    (even,) = told
    assert (even.kind, even.what) == ("work", "even work")
    assert even.gain == pytest.approx(130 / 100 - 1, rel=0.05)


def test_a_slow_link_costs_what_its_exchange_takes_longer() -> None:
    slow = SlowExchange("dp", "d", 2.0, 1, (0, 1), frozenset("ab"), 60_000, 30_000)
    told = follow(WhatIfs(), frame({0: 100, 1: 100}, 1, 160), laid_out(dp=2), [], exchanges=[slow])
    assert gains(told) == {"link": pytest.approx(160 / 130 - 1, abs=1e-3)}


def test_a_job_in_which_all_are_alike_has_nothing_to_gain() -> None:
    assert follow(WhatIfs(), frame({0: 100, 1: 100}), laid_out(dp=2), []) == ()


def test_a_rank_that_is_slow_no_more_is_told_no_more() -> None:
    what_ifs, places = WhatIfs(), laid_out(dp=2)
    follow(what_ifs, frame({0: 130, 1: 100}, 1, 150), places, [excess(0, 130, 100)])
    assert follow(what_ifs, frame({0: 100, 1: 100}, 2), places, []) == ()
