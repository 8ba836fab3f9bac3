from __future__ import annotations

import pytest

from holdfast_sidecar.cli.tui.heatmap import standstill
from holdfast_sidecar.export.live.view import Heat


@pytest.mark.parametrize(
    ("steps", "step_s", "stood"),
    [
        ([1, 2, 3, 4, 5], 1.0, set()),
        ([1, 1, 2, 2, 3], 2.0, set()),  # a column is shorter than a step
        ([1, 2, 2, 2, 2, 2], 1.0, {2, 3, 4, 5}),
        ([1, 2, 2, 2, 2, 2], 2.0, set()),  # not yet for three steps
        ([1, 2, 2, 2, 2, 2, 3], 1.0, {2, 3, 4, 5}),  # and goes on
        ([5, 5, 5, 5, 5, 2, 3], 1.0, {1, 2, 3, 4}),  # went back: that is no standing
        ([None, None, None, None, None], 1.0, set()),
        ([3, None, None, None, 4], 1.0, set()),
        ([1, 1], None, set()),
        ([1, 1, 1], None, {1, 2}),
    ],
)
def test_a_job_stands_that_takes_no_step_for_three_of_its_steps(
    steps: list[int | None], step_s: float | None, stood: set[int]
) -> None:
    heat = Heat(columns=[100.0 + number for number in range(len(steps))], steps=steps)
    assert standstill(heat, step_s) == stood


def test_more_steps_than_columns_are_nothing_to_stumble_over() -> None:
    assert standstill(Heat(columns=[1.0], steps=[1] * 9), 0.1) == set()
