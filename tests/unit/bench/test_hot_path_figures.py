"""What the hooks take of a step, judged: each figure can be missed."""

from __future__ import annotations

from bench.benchmark import Sample
from bench.detection.hot_path_figures import OBJECTS_AT_REST, hot_path_figures
from bench.detection.names import HOT_PATH
from bench.figures import missed


def samples(
    p99_us: float = 9.0,
    sampled_p99_us: float = 15.0,
    calls: float = 0.0,
    blocks: int = 2,
    resident_bytes: int = 0,
) -> list[Sample]:
    time = {
        "three_lines_median_us": 8.0,
        "passed_over_median_us": 5.0,
        "backward_wait_us": 4.0,
        "sampled_p99_us": sampled_p99_us,
        "collective_us": 1.2,
        "blocks": 400.0,
    }
    found: list[Sample] = [{**time, "p99_us": value} for value in (p99_us, p99_us, 99.0)]
    found.append({"system_calls_per_step": calls})
    found.append({"steps": 10**6, "blocks": blocks, "resident_bytes": resident_bytes})
    return [{"row": HOT_PATH, **sample} for sample in found]


def test_all_goals_are_met_by_hooks_that_cost_little_and_leave_nothing() -> None:
    figures = hot_path_figures(samples())
    assert not missed(figures)
    assert [figure.met for figure in figures if figure.goal] == [True] * 5


def test_each_goal_can_be_missed() -> None:
    for bad in (
        samples(p99_us=10.1),
        samples(sampled_p99_us=20.1),
        samples(calls=0.001),
        samples(blocks=OBJECTS_AT_REST + 1),
        samples(blocks=-OBJECTS_AT_REST - 1),
        samples(resident_bytes=4096),
    ):
        assert [figure.met for figure in hot_path_figures(bad)].count(False) == 1


def test_what_was_not_run_is_neither_met_nor_missed() -> None:
    assert {figure.met for figure in hot_path_figures([])} == {"not run"}


def test_samples_of_an_earlier_run_may_tell_less() -> None:
    earlier = [{k: v for k, v in s.items() if k != "passed_over_median_us"} for s in samples()]
    found = {figure.name: figure.met for figure in hot_path_figures(earlier)}
    assert found["hot path: step whose parts are not measured, median"] == "not run"
    assert list(found.values()).count("not run") == 1
