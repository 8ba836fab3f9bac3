"""The rows of the detection benchmark beside each other."""

from __future__ import annotations

import pytest
from bench.detection.goals import figures
from bench.detection.rows import BENCHMARK, tasks
from bench.figures import NOT_RUN


@pytest.mark.parametrize("row", BENCHMARK.rows)
def test_a_row_that_could_not_be_measured_takes_no_other_one_down(row: str) -> None:
    found = figures([{"row": row, "not_run": "no memory"}])
    goals = [figure for figure in found if figure.goal is not None]
    assert {figure.met for figure in goals} == {NOT_RUN}


def test_every_task_has_a_key_of_its_own_and_a_row_that_can_be_asked_for() -> None:
    for quick in (False, True):
        planned = tasks(quick)
        assert len({task.key for task in planned}) == len(planned)
        assert {task.row for task in planned} == set(BENCHMARK.rows)
