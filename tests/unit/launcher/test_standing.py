from __future__ import annotations

import pytest

from holdfast_sidecar.launcher.standing import (
    Fence,
    Standing,
    known_end,
    seat,
    while_joining,
    while_running,
)
from holdfast_sidecar.records.plan import Member, Plan

ME = "me-1"
MINE = [Member("a", ME, 0, 0, 2), Member("b", "other", 1, 2, 2)]
OTHERS = [Member("b", "other", 0, 0, 2)]


def plan(attempt: int, state: str, members: list[Member] = MINE, epoch: int = 1) -> Plan:
    return Plan(attempt=attempt, epoch=epoch, state=state, members=members)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (None, Standing.WAIT),
        (plan(4, "running"), Standing.RUN),
        (plan(3, "running"), Standing.WAIT),
        (plan(4, "running", OTHERS), Standing.WAIT),
        (plan(4, "evidence"), Standing.WAIT),
        (plan(4, "ended"), Standing.WAIT),
        (plan(4, "done", OTHERS), Standing.DONE),
        (plan(4, "stopped", []), Standing.STOPPED),
        (plan(3, "stopped"), Standing.STOPPED),
        (plan(3, "stopped", OTHERS), Standing.WAIT),
        (plan(3, "done", OTHERS), Standing.WAIT),
    ],
)
def test_a_joining_agent_runs_only_a_later_attempt_it_has_a_seat_in(
    seen: Plan | None, expected: Standing
) -> None:
    assert while_joining(seen, ME, known=3, fence=Fence()) is expected


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (None, Standing.WAIT),
        (plan(3, "running"), Standing.WAIT),
        (plan(3, "evidence"), Standing.WAIT),
        (plan(3, "ended"), Standing.END),
        (plan(4, "running"), Standing.END),
        (plan(4, "running", OTHERS), Standing.END),
        (plan(3, "done"), Standing.DONE),
        (plan(3, "stopped"), Standing.STOPPED),
        (plan(5, "stopped", []), Standing.STOPPED),
    ],
)
def test_a_running_agent_ends_when_its_attempt_is_over(
    seen: Plan | None, expected: Standing
) -> None:
    assert while_running(seen, attempt=3, fence=Fence(3, 1)) is expected


@pytest.mark.parametrize("stale", [plan(2, "ended", epoch=5), plan(3, "ended", epoch=1)])
def test_a_plan_older_than_what_was_obeyed_is_refused(stale: Plan) -> None:
    fence = Fence(attempt=3, epoch=2)
    assert while_running(stale, 3, fence) is Standing.WAIT
    assert while_joining(stale, ME, 1, fence) is Standing.WAIT


def test_a_seat_belongs_to_one_start_of_a_launcher() -> None:
    assert seat(plan(1, "running"), ME) == MINE[0]
    assert seat(plan(1, "running"), "me-2") is None


@pytest.mark.parametrize(
    ("seen", "known"),
    [
        (None, -1),
        (plan(7, "done", OTHERS), 7),
        (plan(7, "stopped", OTHERS), 7),
        (plan(7, "running", OTHERS), -1),
        (plan(7, "stopped"), -1),
    ],
)
def test_a_run_that_was_over_before_the_launcher_came_does_not_end_it(
    seen: Plan | None, known: int
) -> None:
    assert known_end(seen, ME) == known
