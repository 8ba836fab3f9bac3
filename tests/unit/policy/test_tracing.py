"""Whom to trace, when, and what became of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from tests.unit.records import slow_job

from holdfast_sidecar.policy.tracing import (
    Taken,
    TraceChoice,
    TracePending,
    TraceRefused,
    TraceTooLate,
    TraceVoid,
    awaits_times,
    choose,
    judge,
    obstacle,
    slowest_and_peer,
    step_to_trace,
)
from holdfast_sidecar.records.checkpoint import TracedPart, TracedRank, TraceOrder
from holdfast_sidecar.records.plan import Member, Plan, Request
from holdfast_sidecar.records.reports import NodeReport, RankReport
from holdfast_sidecar.records.steps import SlownessReport

PLAN = Plan(2, 1, "running", [Member("a", "i", 0, 0, 2), Member("b", "i", 1, 2, 2)], 4)
ASKED = Request("r1", "trace")


def ranks(*own_s: float, step: int = 100, step_s: float = 0.1) -> dict[int, RankReport]:
    return {
        number: RankReport(number, 0, 1, step, "forward", 0.0, step_s, own)
        for number, own in enumerate(own_s)
    }


FOUR = ranks(0.05, 0.051, 0.08, 0.049)


def standing(*slow: tuple[list[int], float]) -> SlownessReport:
    found = [slow_job.slow(*named, slowdown=by) for named, by in slow]
    return SlownessReport(2, 99, 4, 0.0, found)


def test_the_slowest_that_was_judged_is_traced_beside_a_healthy_rank() -> None:
    slow, peer, why = slowest_and_peer(FOUR, {}, standing(([1], 0.2), ([3], 0.3)))
    assert (slow, peer) == (3, 0)
    assert why == "rank 3 is 30% slower than its peers (cpu_quota)"


def test_where_nobody_is_judged_slow_the_longest_own_time_beside_the_peers_counts() -> None:
    slow, peer, why = slowest_and_peer(FOUR, {}, None)
    assert (slow, peer) == (2, 0)
    assert "no rank is judged slow" in why
    assert "+60%" in why


def test_ranks_are_compared_with_their_own_role_alone() -> None:
    roles = {0: "actor", 1: "actor", 2: "learner", 3: "learner"}
    slow, peer, _ = slowest_and_peer(ranks(0.05, 0.06, 0.5, 0.5), roles, None)
    assert (slow, peer) == (1, 0)


def test_a_rank_without_a_peer_is_traced_alone_and_it_is_said() -> None:
    choice = choose(ASKED, ranks(0.05), {}, None)
    assert isinstance(choice, TraceChoice)
    assert (choice.ranks, choice.compared) == ([0], [0])
    assert "no peer" in choice.why


def test_without_any_time_known_somebody_is_traced_all_the_same() -> None:
    choice = choose(ASKED, ranks(0.0, 0.0), {}, None)
    assert isinstance(choice, TraceChoice)
    assert choice.compared == [0, 1]
    assert "nor any rank's own time" in choice.why


@pytest.mark.parametrize(
    ("named", "ranks_traced", "compared"),
    [
        ([3, 0], [0, 3], [3, 0]),
        ([2], [2], [2]),
        ([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5], [5, 0]),
        ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [0]),
    ],
)
def test_ranks_that_are_named_are_traced(
    named: list[int], ranks_traced: list[int], compared: list[int]
) -> None:
    six = ranks(0.05, 0.05, 0.05, 0.05, 0.05, 0.09)
    choice = choose(dataclasses.replace(ASKED, ranks=named), six, {}, None)
    assert isinstance(choice, TraceChoice)
    assert (choice.ranks, choice.compared) == (ranks_traced, compared)


def test_times_are_waited_for_of_ranks_that_step_or_of_all_that_have_only_begun() -> None:
    fresh, known = ranks(0.0, 0.0, step=0, step_s=0.0), ranks(0.05, 0.05)
    assert awaits_times(ASKED, fresh)
    assert not awaits_times(ASKED, known)
    evaluates = {0: known[0], 1: fresh[1]}
    assert not awaits_times(ASKED, evaluates), "it never steps"
    assert awaits_times(ASKED, {0: known[0], 1: dataclasses.replace(fresh[1], step=1)})
    assert not awaits_times(dataclasses.replace(ASKED, at_step=500), fresh)


def test_a_rank_that_there_is_not_is_refused() -> None:
    choice = choose(dataclasses.replace(ASKED, ranks=[1, 9]), FOUR, {}, None)
    assert choice == TraceRefused("there is no rank 9: the job has ranks 0 to 3")


def test_the_step_lies_beyond_what_every_rank_can_miss_with_one_to_warm_up_in() -> None:
    seen = ranks(0.05, 0.05)
    seen[1] = dataclasses.replace(seen[1], step=104)
    assert step_to_trace(ASKED, seen, margin_s=1.0) == 104 + 10 + 1 + 1


@pytest.mark.parametrize(
    ("at_step", "for_s", "answer"),
    [
        (500, 60.0, 500),
        (90, 60.0, "step 90 is too soon: a rank is at 100"),
        (111, 60.0, "all can have heard of it by step 112"),
        (5000, 60.0, "step 5000 and what is traced from there is 491 s away"),
    ],
)
def test_a_step_that_is_named_is_taken_or_refused_with_the_reason(
    at_step: int, for_s: float, answer: int | str
) -> None:
    request = dataclasses.replace(ASKED, at_step=at_step, for_s=for_s)
    found = step_to_trace(request, ranks(0.05, 0.05), margin_s=1.0)
    if isinstance(answer, int):
        assert found == answer
    else:
        assert isinstance(found, TraceRefused)
        assert answer in found.reason


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"phase": "starting"}, "the ranks are still starting"),
        ({"alive": False}, "a rank has ended"),
        ({"ending": 1}, "a rank has ended"),
    ],
)
def test_nothing_is_ordered_before_all_ranks_step(changes: dict[str, Any], why: str) -> None:
    assert obstacle(PLAN, FOUR) == ""
    assert obstacle(PLAN, {**FOUR, 1: dataclasses.replace(FOUR[1], **changes)}) == why


def test_nothing_is_ordered_of_an_attempt_that_is_over_or_not_whole() -> None:
    assert obstacle(dataclasses.replace(PLAN, state="evidence"), FOUR) == "the attempt has ended"
    assert obstacle(PLAN, ranks(0.1)) == "1 of 4 ranks are up"


ORDER = TraceOrder("t1", 2, 1, 120, 1, "armed", 60.0, "r1", [0, 2], [2, 0])


def told(*traced: TracedRank, identifier: str = "t1") -> dict[str, NodeReport]:
    return {
        f"n{one.rank}": NodeReport(
            f"n{one.rank}", "i", 1, 0, 1, 2, True, traced=TracedPart(identifier, [one])
        )
        for one in traced
    }


def verdict(
    nodes: dict[str, NodeReport], armed_for_s: float = 5.0, **changes: Any
) -> Taken | TraceTooLate | TraceVoid | TracePending:
    given: dict[str, Any] = {"plan": PLAN, "ranks": FOUR, "is_wanted": True} | changes
    return judge(
        ORDER, given["plan"], nodes, given["ranks"], given["is_wanted"], armed_for_s=armed_for_s
    )


SAVED = [TracedRank(0, "saved", is_summed_up=True), TracedRank(2, "saved", is_summed_up=True)]


def test_it_is_taken_once_all_have_saved_and_those_compared_are_summed_up() -> None:
    assert verdict(told(*SAVED)) == Taken(tuple(SAVED))
    assert verdict(told(SAVED[0], TracedRank(2, "saved"))) == TracePending()
    assert verdict(told(SAVED[0])) == TracePending()
    assert verdict(told(*SAVED, identifier="t0")) == TracePending()


def test_what_some_ranks_took_is_handed_out_though_another_failed() -> None:
    failed = TracedRank(2, "failed", error="the script's own profiler is active")
    assert verdict(told(SAVED[0], failed)) == Taken((SAVED[0], failed))


def test_where_all_failed_the_reason_is_told() -> None:
    failed = [TracedRank(rank, "failed", error="no Kineto") for rank in (0, 2)]
    assert verdict(told(*failed)) == TraceVoid("rank 0: no Kineto")


def test_one_that_was_past_the_step_makes_it_late() -> None:
    found = verdict(told(TracedRank(0, "missed"), TracedRank(2, "armed")))
    assert found == TraceTooLate("rank 0 was past step 120 when it heard of it")


def test_a_rank_that_never_gets_there_is_named_with_the_step_it_is_at() -> None:
    stuck = {**FOUR, 2: dataclasses.replace(FOUR[2], step=87)}
    assert verdict({}, 59.0, ranks=stuck) == TracePending()
    assert verdict({}, 61.0, ranks=stuck) == TraceVoid(
        "rank 2 is at step 87 and did not get to 121 within 60 s"
    )


def test_a_rank_that_ends_is_not_waited_for() -> None:
    gone = {**FOUR, 2: dataclasses.replace(FOUR[2], alive=False)}
    assert verdict({}, ranks=gone) == TraceVoid("rank 2 ended before step 121")


def test_a_rank_that_could_not_even_say_why_is_told_all_the_same() -> None:
    mute = [TracedRank(0, "failed"), TracedRank(2, "failed")]
    left = {0: FOUR[0], 1: FOUR[1]}
    found = verdict(told(*mute), ranks=left)
    assert isinstance(found, TraceVoid)
    assert found.reason.startswith("rank 0: it failed, and could not write down why")


ENDED = TraceVoid("rank 2 ended before step 121")
ENDS = {"ending": 1}
LEFT = {"alive": False}


@pytest.mark.parametrize(
    ("first", "second", "change", "found"),
    [
        (SAVED[0], TracedRank(2, "saving"), ENDS, TracePending()),  # it waits for its file
        (SAVED[0], TracedRank(2, "saving"), LEFT, Taken((SAVED[0], TracedRank(2, "saving")))),
        (SAVED[0], TracedRank(2, "armed"), ENDS, Taken((SAVED[0], TracedRank(2, "armed")))),
        (TracedRank(0, "saving"), TracedRank(2, "armed"), LEFT, TracePending()),
        (TracedRank(0, "saving"), SAVED[1], LEFT, TracePending()),  # who has saved may leave
        (
            TracedRank(0, "armed"),
            TracedRank(2, "armed"),
            ENDS,
            TraceVoid("rank 2 ended before step 121"),
        ),
    ],
)
def test_a_rank_that_ends_takes_no_file_from_the_others(
    first: TracedRank, second: TracedRank, change: dict[str, Any], found: object
) -> None:
    seen = {**FOUR, 2: dataclasses.replace(FOUR[2], **change)}
    assert verdict(told(first, second), ranks=seen) == found


@pytest.mark.parametrize(
    "plan", [dataclasses.replace(PLAN, attempt=3), dataclasses.replace(PLAN, state="ended")]
)
def test_it_ends_with_its_attempt_but_for_the_files_that_are_there(plan: Plan) -> None:
    assert verdict({}, plan=plan) == TraceVoid("the attempt ended")
    assert verdict(told(TracedRank(0, "saving")), plan=plan) == TraceVoid("the attempt ended")
    assert verdict(told(*SAVED), plan=plan) == Taken(tuple(SAVED))
    assert verdict(told(SAVED[0]), plan=plan) == Taken((SAVED[0], TracedRank(2)))


def test_ranks_that_are_watched_from_outside_alone_are_refused_at_once() -> None:
    seen = {rank: dataclasses.replace(one, phase="resting") for rank, one in FOUR.items()}
    answer = choose(ASKED, seen, {}, None)
    assert isinstance(answer, TraceRefused)
    assert "no hooks" in answer.reason


def test_it_ends_when_nobody_waits_for_it_any_more() -> None:
    assert verdict({}, is_wanted=False) == TraceVoid("nobody waits for it any more")
