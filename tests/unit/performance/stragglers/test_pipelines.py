"""What would be with other stages, beside what the schedules come to exactly."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from tests.unit.performance.stragglers.parallel import laid_out
from tests.unit.performance.stragglers.schedules import Task, gpipe, lasts, one_f_one_b
from tests.unit.performance.stragglers.told import line

from holdfast_sidecar.performance.stragglers.frame import StepFrame
from holdfast_sidecar.performance.stragglers.what_if import WhatIfs
from holdfast_sidecar.records.steps import ProcessGroup

Schedule = Callable[[int, int, int], Iterator[Task]]

DP = 2
EXCHANGE_MS = 8.0
"""After the pipeline, of gradients: among all ranks of a stage."""


def step_ms(own_ms: Sequence[float], micro_batches: int, schedule: Schedule) -> float:
    """A third of it is forward."""
    stages = len(own_ms)
    orders = [list(schedule(stages, stage, micro_batches)) for stage in range(stages)]
    times = [(own / micro_batches / 3, own / micro_batches * 2 / 3) for own in own_ms]
    return lasts(orders, times) + EXCHANGE_MS


MESSAGES_MS = 6.0


def test_what_messages_take_stays_with_even_stages() -> None:
    own, even = (44, 85), (64.5, 64.5)
    gains = told(own, 2, gpipe, messages_ms=MESSAGES_MS)
    now, then = (step_ms(one, 2, gpipe) + MESSAGES_MS for one in (own, even))
    assert gains["even stages"] == pytest.approx(now / then - 1, abs=0.005)


def told(
    own_ms: Sequence[float],
    micro_batches: int,
    schedule: Schedule,
    is_told: bool = True,
    messages_ms: float = 0.0,
) -> dict[str, float]:
    """What-if -> gain."""
    places = {
        rank: replace(
            place,
            groups=(ProcessGroup("mesh_dp", f"dp-{place.coordinate['pp']}", DP), *[None] * 3),
            micro_batches=micro_batches if is_told else 0,
        )
        for rank, place in laid_out(dp=DP, pp=len(own_ms)).items()
    }
    total = step_ms(own_ms, micro_batches, schedule) + messages_ms
    what_ifs = WhatIfs()
    for step in range(1, 40):
        lines = {
            rank: line(
                rank,
                step,
                total=round(1000 * total),
                data=0,
                forward=round(1000 * own_ms[place.coordinate["pp"]]),
                backward=0,
                communicating=round(1000 * (total - own_ms[place.coordinate["pp"]])),
                wait_1=round(1000 * EXCHANGE_MS),
            )
            for rank, place in places.items()
        }
        frame = StepFrame(step - 1, step, lines)
        found = what_ifs.follow(frame, what_ifs.read(frame, places), [])
    return {one.what: one.gain for one in found}


@pytest.mark.parametrize("schedule", [gpipe, one_f_one_b])
@pytest.mark.parametrize("micro_batches", [2, 4, 8, 32])
@pytest.mark.parametrize("own", [(44, 85), (85, 44), (60, 60, 60, 90), (60, 90, 50, 60)])
def test_what_if_stages_were_even_or_one_was_as_fast_is_what_the_schedule_says(
    schedule: Schedule, micro_batches: int, own: Sequence[float]
) -> None:
    gains = told(own, micro_batches, schedule)
    now = step_ms(own, micro_batches, schedule)
    even = step_ms([statistics.fmean(own)] * len(own), micro_batches, schedule)
    others = statistics.fmean(us for us in own if us != max(own))
    fast = [others if us == max(own) else us for us in own]
    # An early stage with more to do fills the pipeline best: then there is nothing to gain.
    assert gains.get("even stages", 0.0) == pytest.approx(max(0.0, now / even - 1), abs=0.025)
    stage = f"stage {own.index(max(own))}"
    assert gains[stage] == pytest.approx(
        now / step_ms(fast, micro_batches, schedule) - 1, abs=0.025
    )


@pytest.mark.parametrize("micro_batches", [2, 8, 32])
def test_where_nobody_tells_of_micro_batches_the_last_stage_shows_them(micro_batches: int) -> None:
    own = (44, 44, 85)
    even = step_ms([statistics.fmean(own)] * 3, micro_batches, one_f_one_b)
    now = step_ms(own, micro_batches, one_f_one_b)
    gains = told(own, micro_batches, one_f_one_b, is_told=False)
    assert gains["even stages"] <= now / even - 1 + 0.02
    if micro_batches <= 8:
        assert gains["even stages"] == pytest.approx(now / even - 1, abs=0.04)
