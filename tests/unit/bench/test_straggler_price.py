"""What watching costs stands among the figures of who is slow, each with its goal."""

from __future__ import annotations

import pytest
from bench.benchmark import Sample
from bench.detection.names import HOT_PATH
from bench.launch.names import HOLDFAST, HOOKS_PAIRED
from bench.stragglers.rows import BENCHMARK, figures

GOALS = {
    "hot path: fully instrumented step, p99 of 100-step means": "<= 10",
    "hot path: fully instrumented step, all parts measured, p99 of the same": "<= 20",
    "hooks: on/off of a real step, upper bound of the 95 % interval": "<= 1",
    "steps on a GPU slower with hooks (python -m bench gpu-anatomy)": "<= 0.2",
}


def samples(p99_us: float = 9.0, sampled_us: float = 17.0, upper: float = 0.6) -> list[Sample]:
    others = ("three_lines_median_us", "passed_over_median_us", "backward_wait_us", "collective_us")
    alone = {"p99_us": p99_us, "sampled_p99_us": sampled_us, **dict.fromkeys(others, 1.0)}
    ends = {"lower_percent": 0.1, "percent": 0.3, "upper_percent": upper}
    return [
        {"row": HOT_PATH, "mode": "full", **alone},
        {"row": HOOKS_PAIRED, "mode": "full", "contestant": HOLDFAST, **ends},
    ]


def met(found: list[Sample]) -> dict[str, object]:
    return {one.name: one.met for one in figures(found) if one.name in GOALS}


def test_each_price_has_its_goal_and_the_gpus_is_told_as_not_run() -> None:
    goals = {one.name: one.goal for one in figures([]) if one.name in GOALS}
    assert goals == GOALS
    assert set(met([]).values()) == {"not run"}
    assert list(met(samples()).values()) == [True, True, True, "not run"]
    assert {HOT_PATH, HOOKS_PAIRED} <= set(BENCHMARK.rows)


@pytest.mark.parametrize("dear", [{"p99_us": 10.1}, {"sampled_us": 20.1}, {"upper": 1.1}])
def test_each_price_can_be_too_high(dear: dict[str, float]) -> None:
    assert list(met(samples(**dear)).values()).count(False) == 1
