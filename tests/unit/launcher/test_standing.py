from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from holdfast_sidecar.launcher.plan_state import (
    EXIT_BARRIER_S,
    AttemptState,
    ExitBarrier,
    PlanFence,
    all_live,
    known_end,
    may_leave_unused,
    seat,
    while_joining,
    while_running,
    why_not_admitted,
    why_unused,
)
from holdfast_sidecar.records.plan import Member, Plan, Quarantine, Requeues
from holdfast_sidecar.records.reports import AgentReport, GateVerdict

ME = "me-1"
MINE = [Member("a", ME, 0, 0, 2), Member("b", "other", 1, 2, 2)]
OTHERS = [Member("b", "other", 0, 0, 2)]


def plan(attempt: int, state: str, members: list[Member] = MINE, epoch: int = 1) -> Plan:
    return Plan(attempt=attempt, epoch=epoch, state=state, members=members)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (None, AttemptState.WAIT),
        (plan(4, "running"), AttemptState.RUN),
        (plan(3, "running"), AttemptState.WAIT),
        (plan(4, "running", OTHERS), AttemptState.WAIT),
        (plan(4, "evidence"), AttemptState.WAIT),
        (plan(4, "ended"), AttemptState.WAIT),
        (plan(4, "done", OTHERS), AttemptState.DONE),
        (plan(4, "stopped", []), AttemptState.STOPPED),
        (plan(3, "stopped"), AttemptState.STOPPED),
        (plan(3, "stopped", OTHERS), AttemptState.WAIT),
        (plan(3, "done", OTHERS), AttemptState.WAIT),
    ],
)
def test_a_joining_agent_runs_only_a_later_attempt_it_has_a_seat_in(
    seen: Plan | None, expected: AttemptState
) -> None:
    assert while_joining(seen, ME, known=3, fence=PlanFence()) is expected


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (None, AttemptState.WAIT),
        (plan(3, "running"), AttemptState.WAIT),
        (plan(3, "evidence"), AttemptState.WAIT),
        (plan(3, "ended"), AttemptState.END),
        (plan(4, "running"), AttemptState.END),
        (plan(4, "running", OTHERS), AttemptState.END),
        (plan(3, "done"), AttemptState.DONE),
        (plan(3, "stopped"), AttemptState.STOPPED),
        (plan(5, "stopped", []), AttemptState.STOPPED),
    ],
)
def test_a_running_agent_ends_when_its_attempt_is_over(
    seen: Plan | None, expected: AttemptState
) -> None:
    assert while_running(seen, attempt=3, fence=PlanFence(3, 1)) is expected


@pytest.mark.parametrize("stale", [plan(2, "ended", epoch=5), plan(3, "ended", epoch=1)])
def test_a_plan_older_than_what_was_obeyed_is_refused(stale: Plan) -> None:
    fence = PlanFence(attempt=3, epoch=2)
    assert while_running(stale, 3, fence) is AttemptState.WAIT
    assert while_joining(stale, ME, 1, fence) is AttemptState.WAIT


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


def test_ranks_that_ended_well_wait_so_long_without_a_leader_and_no_longer() -> None:
    barrier = ExitBarrier()
    assert not barrier.is_over("nobody leads", 0.0)
    assert not barrier.is_over("the server is away", EXIT_BARRIER_S - 1)
    assert not barrier.is_over("", EXIT_BARRIER_S)
    assert not barrier.is_over("nobody leads", EXIT_BARRIER_S + 1), "it was led a moment ago"
    assert barrier.is_over("nobody leads", 2 * EXIT_BARRIER_S + 1)


def agent(node: str, incarnation: str, beat: int = 1, **more: object) -> AgentReport:
    given: dict[str, object] = {"launch": "one", "max_nodes": 2} | more
    return AgentReport(node, incarnation, "x", 0, beat, 2, "", 1, **given)  # type: ignore[arg-type]


def members(beat: int = 1, **more: object) -> dict[str, AgentReport]:
    return {"a": agent("a", ME, beat, **more), "b": agent("b", "other", beat, **more)}


def test_members_are_known_to_live_once_each_was_heard_twice() -> None:
    runs = plan(0, "running")
    assert all_live(runs, members(1), members(2))
    assert not all_live(runs, members(1), members(2) | {"b": agent("b", "other", 1)})
    assert not all_live(runs, members(1), members(2) | {"b": agent("b", "another", 2)})
    assert not all_live(runs, {"a": agent("a", ME)}, members(2))


def test_a_newcomer_waits_only_where_a_place_may_come() -> None:
    runs = plan(0, "running")

    def refused(seats: int = 2, **more: Any) -> str:
        own = agent("c", "new", max_nodes=seats, **more)
        return why_not_admitted("j", runs, own, members(max_nodes=seats))

    assert "runs already with all its nodes (a, b)" in refused()
    assert refused(spares=1) == ""
    assert refused(seats=3) == ""
    for more in ({}, {"spares": 1}, {"seats": 3}):
        line = refused(launch="two", **more)
        assert "run by another launch (one, on a, b; this one is two)" in line
        assert "one HOLDFAST_LAUNCH_ID" in line


def test_another_command_of_one_user_is_refused_and_told_what_differs() -> None:
    runs, command = plan(0, "running"), {"script": "s", "arguments of the script": "x"}
    inside = members(max_nodes=4, launch_command="x", command=command)

    def refused(**more: Any) -> str:
        return why_not_admitted("j", runs, agent("c", "new", max_nodes=4, **more), inside)

    assert refused(launch_command="x", command=command) == ""
    unlike = command | {"arguments of the script": "y"}
    line = refused(launch_command="y", command=unlike, spares=1)
    assert "(on a, b; here differs: arguments of the script)" in line
    assert "--job" in line
    assert "HOLDFAST_LAUNCH_ID" in line
    assert "\n" not in line


def test_who_ran_nothing_is_content_with_the_end_only_as_a_spare_or_a_successor() -> None:
    over = plan(1, "done")
    assert not may_leave_unused(over, agent("c", "new"), {})
    assert may_leave_unused(over, agent("c", "new", spares=1), {})
    assert may_leave_unused(over, agent("a", "new"), {})


def test_a_node_of_the_same_launch_that_the_job_did_without_shares_its_outcome() -> None:
    over = plan(1, "done", OTHERS)
    inside = {"b": agent("b", "other")}
    assert may_leave_unused(over, agent("c", "new"), inside)
    assert not may_leave_unused(over, agent("c", "new", launch="two"), inside)
    assert not may_leave_unused(over, agent("c", "new", launch_command="x"), inside)
    assert not may_leave_unused(over, agent("c", "new", max_nodes=1), inside), "one too many"
    assert not may_leave_unused(over, agent("c", "new"), {}), "nobody says whose job it was"
    told = dataclasses.replace(over, requeues=Requeues(launch="one"))
    assert may_leave_unused(told, agent("c", "new"), {})
    other = agent("c", "new", launch_command="x")
    assert not may_leave_unused(told, other, {})
    assert may_leave_unused(told, dataclasses.replace(other, has_launch_id=True), {})
    ill = Quarantine("machine-c", "c", 0.0, 9e9, ["its GPU fell off the bus"])
    kept = dataclasses.replace(over, outside=[ill])
    own = agent("c", "new", max_nodes=1, machine="machine-c")
    assert may_leave_unused(kept, own, inside)
    assert why_unused(kept, own, None) == "it was kept outside: its GPU fell off the bus"
    unfit = GateVerdict("unfit", ["7 of 8 GPUs"])
    assert why_unused(over, own, unfit) == "its health gate found it unfit: 7 of 8 GPUs"
