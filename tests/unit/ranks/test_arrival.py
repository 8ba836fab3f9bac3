from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast_sidecar.ranks.collectives import Arrival, StuckCause
from holdfast_sidecar.ranks.deadlock import deadlocked, judge
from holdfast_sidecar.records.collectives import CollectiveCall, CollectiveState, RankTrace

STEP = ("all_reduce x 1024", "all_reduce x 8", "broadcast x 3")
"""The collectives of one step of a pretended program."""


def call(number: int, what: str) -> CollectiveCall:
    name, _, shape = what.partition(" x ")
    return CollectiveCall(number, name, f"Float x {shape}" if shape else "")


def standing(
    calls: Sequence[str], completed: int | None = None, group: str = "0", title: str = "default_pg"
) -> CollectiveState:
    """What a recorder tells of a rank that entered these, one after the other."""
    entered = len(calls)
    done = entered if completed is None else completed
    return CollectiveState(
        group=group,
        backend="gloo",
        title=title,
        entered=entered,
        completed=done,
        pending=[call(n + 1, calls[n]) for n in range(done, entered)][:3],
        history="".join(f"{zlib.crc32(what.encode()) & 0xFFFF:04x}" for what in calls)[-4 * 48 :],
    )


def trace(rank: int, *standings: CollectiveState, size: int = 4, **changes: object) -> RankTrace:
    values: dict[str, object] = {
        "answered": True,
        "groups": {one.group: size for one in standings} or {"0": size},
        "standings": list(standings),
        "is_whole": True,
        "is_overdue": True,
        "stands": True,
        "told_standing": True,
    }
    return RankTrace(rank, **(values | changes))  # type: ignore[arg-type]


def mute(rank: int, size: int = 4) -> RankTrace:
    return RankTrace(rank, groups={"0": size})


def of(*traces: RankTrace, ended: Sequence[int] = ()) -> Arrival | None:
    return judge({one.rank: one for one in traces}, set(ended), len(traces))


PAST = STEP * 4
"""Four steps that everybody made."""


def test_nobody_is_named_while_nobody_waits() -> None:
    assert of(*(trace(rank, standing(PAST)) for rank in range(4))) is None


def test_who_has_not_entered_what_all_others_wait_in_is_the_culprit() -> None:
    waiting = [trace(rank, standing([*PAST, STEP[0]], 12)) for rank in (0, 1, 3)]
    found = of(*waiting, trace(2, standing(PAST)))
    assert found is not None
    assert (found.cause, found.culprits, found.waiting) == (StuckCause.ABSENT, (2,), (0, 1, 3))
    assert not found.is_hopeless
    assert found.evidence == (
        "ranks 0-1, 3 wait in all_reduce of Float x 1024 (no. 13 of default_pg), which rank 2"
        " has not entered",
    )


def test_a_rank_that_never_entered_any_collective_of_a_group_is_told_by_its_membership() -> None:
    waiting = [trace(rank, standing(STEP[:1], 0)) for rank in (0, 1, 3)]
    found = of(*waiting, trace(2))
    assert found is not None
    assert found.culprits == (2,)


def test_of_a_recorder_that_forgot_nothing_is_concluded() -> None:
    waiting = [trace(rank, standing([*PAST, STEP[0]], 12)) for rank in (0, 1, 3)]
    found = of(*waiting, trace(2, is_whole=False))
    assert found is not None
    assert (found.cause, found.culprits) == (StuckCause.MUTE, (2,))


def test_the_victims_of_a_culprit_are_never_named_over_several_groups() -> None:
    """Rank 3 keeps rank 2 waiting in their group, and rank 2 all others in the big one."""
    big = [trace(rank, standing([*PAST, STEP[0]], 12)) for rank in (0, 1)]
    pair: dict[str, Any] = {"groups": {"0": 4, "7": 2}}
    second = trace(2, standing(PAST), standing(STEP[:2], 1, "7", "mesh_tp"), **pair)
    third = trace(3, standing(PAST), standing(STEP[:1], 1, "7", "mesh_tp"), **pair)
    found = of(*big, second, third)
    assert found is not None
    assert (found.cause, found.culprits, found.waiting) == (StuckCause.ABSENT, (3,), (0, 1, 2))
    assert "of mesh_tp" in found.evidence[1]


def test_a_rank_that_awaits_a_message_of_another_is_its_victim() -> None:
    waiting = [trace(rank, standing([*PAST, STEP[0]], 12)) for rank in (0, 1)]
    receiving = trace(2, standing(PAST), messages_to=[3])
    found = of(*waiting, receiving, trace(3, standing(PAST)))
    assert found is not None
    assert found.culprits == (3,)
    unnamed = of(*waiting, trace(2, standing(PAST), awaits_message=True), trace(3, standing(PAST)))
    assert unnamed is not None
    assert (unnamed.culprits, unnamed.waiting) == ((3,), (0, 1, 2))


def test_one_that_cannot_be_asked_is_named_when_all_others_have_arrived() -> None:
    found = of(*(trace(rank, standing([*PAST, STEP[0]], 12)) for rank in (0, 1, 2)), mute(3))
    assert found is not None
    assert (found.cause, found.culprits) == (StuckCause.MUTE, (3,))
    both = of(*(trace(rank, standing([*PAST, STEP[0]], 12)) for rank in (0, 1)), mute(2), mute(3))
    assert both is not None
    assert both.culprits == (2, 3)
    assert both.confidence < found.confidence


def test_a_victim_of_one_that_cannot_be_asked_is_not_named_in_its_place() -> None:
    """Rank 2 waits for the mute rank 3 in their group, the others in the big one for rank 2."""
    big = [trace(rank, standing([*PAST, STEP[0]], 12)) for rank in (0, 1)]
    pair: dict[str, Any] = {"groups": {"0": 4, "7": 2}}
    second = trace(2, standing(PAST), standing(STEP[:1], 0, "7"), **pair)
    found = of(*big, second, RankTrace(3, **pair))
    assert found is not None
    assert (found.cause, found.culprits, found.waiting) == (StuckCause.MUTE, (3,), (0, 1, 2))


def test_of_another_collective_in_the_same_place_the_few_are_to_blame() -> None:
    """Rank 1 left one out and went on: its next one meets the others' present one."""
    right = [trace(rank, standing([*PAST, STEP[0]], 12)) for rank in (0, 2, 3)]
    found = of(*right, trace(1, standing([*PAST, STEP[1]], 12)))
    assert found is not None
    assert (found.cause, found.culprits, found.waiting) == (StuckCause.PARTED, (1,), (0, 2, 3))
    assert found.is_hopeless
    assert found.evidence == (
        "rank 1 entered all_reduce of Float x 8 as no. 13 of default_pg, where ranks 0, 2-3"
        " entered all_reduce of Float x 1024",
        "that is what comes after all_reduce of Float x 1024: as if it had been skipped",
    )
    assert found.signature == (
        "rank 1 entered all_reduce of Float x 8 where others entered all_reduce of Float x 1024"
    )


def test_of_two_ranks_the_one_is_to_blame_that_does_not_as_ever() -> None:
    for culprit, other in ((0, 1), (1, 0)):
        ranks = {
            other: trace(other, standing([*PAST, STEP[0]], 12), size=2),
            culprit: trace(culprit, standing([*PAST, "barrier"], 12), size=2),
        }
        found = judge(ranks, set(), 2)
        assert found is not None
        assert found.culprits == (culprit,)
        assert found.confidence < 0.9


def test_where_collectives_parted_earlier_and_nobody_noticed_that_is_where_the_blame_lies() -> None:
    """Two all-reduces of one size may be taken for each other; the hang comes steps later."""
    program = [*STEP * 3, STEP[0], STEP[2], *STEP]
    right = [trace(rank, standing([*STEP * 5], 13)) for rank in (0, 2, 3)]
    found = of(*right, trace(1, standing(program, 13)))
    assert found is not None
    assert (found.cause, found.culprits) == (StuckCause.PARTED, (1,))
    assert "no. 11 " in found.evidence[0]


def test_calls_that_were_taken_for_each_other_and_completed_keep_nobody_waiting() -> None:
    """Rank 1 made one of another kind long ago; now all wait for rank 3, which computes."""
    other = [*PAST[:9], "barrier", *PAST[10:], STEP[0]]
    waiting = [trace(rank, standing([*PAST, STEP[0]], 12)) for rank in (0, 2)]
    found = of(*waiting, trace(1, standing(other, 12)), trace(3, standing(PAST)))
    assert found is not None
    assert (found.cause, found.culprits, found.is_hopeless) == (StuckCause.ABSENT, (3,), False)


def test_two_groups_of_one_name_made_after_each_other_have_not_parted() -> None:
    """One rank is in the next group already, in whose beginning it waits for the other."""
    ahead = trace(0, standing(["barrier", "barrier", *STEP], 4), size=2)
    behind = trace(1, standing(STEP * 10), size=2)
    found = judge({0: ahead, 1: behind}, set(), 2)
    assert found is None or found.cause is not StuckCause.PARTED


def test_the_first_collectives_of_a_group_may_part() -> None:
    found = of(*(trace(r, standing(STEP[:1], 0)) for r in (0, 1, 3)), trace(2, standing(["x"], 0)))
    assert found is not None
    assert (found.cause, found.culprits) == (StuckCause.PARTED, (2,))


def test_ranks_that_are_merely_further_than_others_have_not_parted() -> None:
    ahead = [trace(rank, standing([*PAST, *STEP], 12)) for rank in (0, 1, 2)]
    found = of(*ahead, trace(3, standing([*PAST, STEP[0]], 13)))
    assert found is not None
    assert (found.cause, found.culprits) == (StuckCause.ABSENT, (3,))


def test_a_rank_that_ended_while_others_wait_for_it_ends_all_hope() -> None:
    waiting = [trace(rank, standing([*PAST, STEP[0]], 12)) for rank in (0, 1, 2)]
    found = of(*waiting, mute(3), ended=[3])
    assert found is not None
    assert (found.cause, found.culprits, found.is_hopeless) == (StuckCause.FINISHED, (3,), True)


@pytest.mark.parametrize("what", ["broadcast x 3", "gather", "scatter", "reduce x 3"])
def test_who_ended_may_have_done_its_part_of_what_others_are_still_in(what: str) -> None:
    """What the first one sent is on its way, from one to the next: slow, and not lost."""
    inside = [trace(rank, standing([*PAST, what], 12)) for rank in (1, 2, 3)]
    found = of(mute(0), *inside, ended=[0])
    assert found is not None
    assert (found.cause, found.culprits, found.is_hopeless) == (StuckCause.FINISHED, (0,), False)
    assert found.signature == ""


def test_who_left_its_part_and_ended_is_not_waited_for_while_another_is_still_to_come() -> None:
    """Rank 0 gathers: rank 3 has sent its part and is through, rank 2 still evaluates."""
    inside = [trace(rank, standing([*PAST, "gather"], 12)) for rank in (0, 1)]
    found = of(*inside, trace(2, standing(PAST)), mute(3), ended=[3])
    assert found is not None
    assert (found.cause, found.culprits, found.is_hopeless) == (StuckCause.ABSENT, (2,), False)


def test_ranks_that_await_messages_of_each_other_may_only_have_asked_ahead() -> None:
    """The second stage computes, having asked for more; the first waits for its answer."""
    first = trace(0, standing(PAST), messages_to=[1], size=2)
    for calls in (PAST, [*PAST, STEP[0]]):
        found = of(first, trace(1, standing(calls, 12), messages_to=[0], size=2))
        assert found is not None
        assert (found.cause, found.culprits, found.is_hopeless) == (
            StuckCause.CROSSED,
            (0, 1),
            False,
        )
        assert found.evidence[-1] == "ranks 0-1 wait for each other, as far as can be told"
        assert found.signature == ""


def test_ranks_that_wait_for_each_other_in_different_groups_will_wait_for_ever() -> None:
    first, second = crossed(0, "1", "2", rests=True), crossed(1, "2", "1", rests=True)
    found = of(first, second)
    assert found is not None
    assert (found.cause, found.culprits, found.is_hopeless) == (StuckCause.CROSSED, (0, 1), True)
    assert found.evidence[-1] == "ranks 0-1 wait for each other"


def crossed(rank: int, waits_in: str, missing_in: str, **changes: Any) -> RankTrace:
    """A rank that has entered one more collective of one group than of the other."""
    standings = standing(STEP[:2], 1, waits_in), standing(STEP[:1], 1, missing_in)
    return trace(rank, *standings, groups={"1": 2, "2": 2}, **changes)


@pytest.mark.parametrize("changes", [{}, {"rests": True, "messages_to": [0]}])
def test_what_was_started_in_different_groups_keeps_nobody_who_is_at_work(
    changes: dict[str, Any],
) -> None:
    """Rank 1 has started a collective, and computes; or awaits a message that may come."""
    found = of(crossed(0, "1", "2", rests=True), crossed(1, "2", "1", **changes))
    assert found is not None
    assert (found.cause, found.is_hopeless, found.signature) == (StuckCause.CROSSED, False, "")
    assert found.evidence[-1].endswith("wait for each other, as far as can be told")


def test_ranks_that_rest_in_a_collective_that_all_have_entered_may_go_on() -> None:
    """It is only slow; what they have started beside it in other groups has crossed."""
    both: dict[str, Any] = {"rests": True, "groups": {"0": 2, "1": 2, "2": 2}}
    slow = standing(STEP[:1], 0)
    first = trace(0, slow, standing(STEP[:2], 1, "1"), standing(STEP[:1], 1, "2"), **both)
    second = trace(1, slow, standing(STEP[:1], 1, "1"), standing(STEP[:2], 1, "2"), **both)
    found = of(first, second)
    assert found is not None
    assert not found.is_hopeless


def test_who_left_a_collective_out_and_went_on_in_another_group_came_out_of_turn() -> None:
    """The others wait in the metric's group, the culprit already in the gradients' one."""
    groups: dict[str, Any] = {"groups": {"0": 3, "1": 3}, "rests": True}
    usual = [trace(r, standing(PAST), standing(STEP[:2], 1, "1"), **groups) for r in (0, 2)]
    culprit = standing([*PAST, STEP[0]], 12), standing(STEP[:1], 1, "1")
    found = of(*usual, trace(1, *culprit, out_of_turn=0, **groups))
    assert found is not None
    assert (found.cause, found.culprits, found.waiting) == (StuckCause.CROSSED, (1,), (0, 2))
    assert found.confidence == 0.9
    assert found.evidence[0].startswith("rank 1 came to all_reduce of Float x 1024 (no. 13 of")
    unsure = of(*usual, trace(1, *culprit, **groups))
    assert unsure is not None
    assert unsure.culprits == (1,)
    assert unsure.confidence < found.confidence


def test_a_collective_that_all_have_entered_is_nobodys_fault() -> None:
    found = of(*(trace(rank, standing([*PAST, STEP[0]], 12)) for rank in range(4)))
    assert found is not None
    assert (found.cause, found.culprits) == (StuckCause.ARRIVED, ())


def test_nothing_is_said_before_all_members_are_known() -> None:
    assert of(*(trace(rank, standing([*PAST, STEP[0]], 12)) for rank in (0, 1, 2))) is None


def counted(rank: int, entered: int, left: int, **changes: object) -> RankTrace:
    return RankTrace(rank, calls_entered=entered, calls_left=left, **changes)  # type: ignore[arg-type]


def test_without_any_recorder_our_own_count_tells_who_is_in_no_collective() -> None:
    found = of(counted(0, 9, 8), counted(1, 8, 8), counted(2, 9, 8))
    assert found is not None
    assert (found.cause, found.culprits, found.waiting) == (StuckCause.ABSENT, (1,), (0, 2))
    assert found.confidence <= 0.5


def test_recorders_that_are_switched_off_tell_as_little_as_none() -> None:
    empty = {"answered": True, "is_whole": True}
    found = of(counted(0, 9, 8, **empty), counted(1, 8, 8, **empty))
    assert found is not None
    assert found.culprits == (1,)


def test_by_our_own_count_an_ended_rank_is_told_and_nothing_is_proven() -> None:
    found = of(counted(0, 9, 8), counted(1, 8, 8), ended=[1])
    assert found is not None
    assert (found.cause, found.culprits, found.is_hopeless) == (StuckCause.FINISHED, (1,), False)


def test_by_our_own_count_nobody_is_blamed_who_may_be_in_a_collective_that_nothing_counts() -> None:
    assert of(counted(0, 9, 8), counted(1, 8, 8, in_backward=True)) is None


def test_by_our_own_count_who_entered_fewest_is_behind_the_others() -> None:
    found = of(counted(0, 9, 8), counted(1, 8, 7), counted(2, 9, 8))
    assert found is not None
    assert found.culprits == (1,)
    assert of(counted(0, 9, 8), counted(1, 9, 8)) is None


def test_counts_of_a_job_with_several_groups_say_nothing() -> None:
    groups = {"groups": {"0": 2, "1": 2}}
    assert of(counted(0, 9, 8, **groups), counted(1, 8, 8, **groups)) is None


def test_a_thousand_ranks_are_judged_by_what_differs() -> None:
    waiting = {r: trace(r, standing([*PAST, STEP[0]], 12), size=1000) for r in range(999)}
    found = judge({**waiting, 999: trace(999, standing(PAST), size=1000)}, set(), 1000)
    assert found is not None
    assert found.culprits == (999,)
    assert found.evidence[0].startswith("ranks 0-998 wait in ")


def test_a_group_that_nobody_told_the_members_of_proves_nothing() -> None:
    """Hooks that came too late know of no groups but that of all ranks."""
    unknown: dict[str, Any] = {"rests": True, "groups": {"0": 2}}
    first = trace(0, standing(PAST), standing(STEP[:2], 1, "1"), **unknown)
    second = trace(1, standing([*PAST, STEP[0]], 12), **unknown)
    assert deadlocked({0: first, 1: second}) == {}
