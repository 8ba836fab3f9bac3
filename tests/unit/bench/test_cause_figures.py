from __future__ import annotations

from bench.stragglers.cause_cases import CAUSES, HELD_OUT, TUNING, draw
from bench.stragglers.cause_figures import cause_figures, confusion
from bench.stragglers.cause_names import CAUSES_ROW, NOBODY
from bench.stragglers.causes import judge

from holdfast_sidecar.records.steps import SlowCause


def sample(cause: str, told: str, others: int = 0) -> dict[str, object]:
    return {
        "row": CAUSES_ROW,
        "cause": cause,
        "told": told,
        "node": "a",
        "told_node": "a",
        "others": ["x"] * others,
    }


def test_unknown_and_nobody_count_as_wrong() -> None:
    told = ["link", "unknown", NOBODY, "link"]
    figures = cause_figures([sample("link", one) for one in told])
    assert figures[0].value == 0.5
    assert figures[0].met is False


def test_the_matrix_counts_what_was_told_of_each_cause() -> None:
    samples = [sample("link", "link"), sample("link", "storage"), sample("storage", "storage")]
    assert confusion(samples) == {"link": {"link": 1, "storage": 1}, "storage": {"storage": 1}}


def test_without_samples_nothing_is_met() -> None:
    assert cause_figures([])[0].met == "not run"


def test_held_out_cases_are_others_than_those_for_tuning() -> None:
    for cause in CAUSES:
        tuning = {draw(cause, TUNING, number).seed for number in range(100)}
        assert tuning.isdisjoint(draw(cause, HELD_OUT, number).seed for number in range(100))


def test_a_case_is_judged_and_its_cause_told() -> None:
    told = judge(draw(SlowCause.GPU_SHARED, TUNING, 0))
    assert told["told"] == "gpu_shared"
    assert told["steps"] <= 10
