from __future__ import annotations

import pytest
from tests.unit.performance.stragglers.exchanging import exchange, grouped
from tests.unit.performance.stragglers.told import line

from holdfast_sidecar.performance.stragglers.exchanges import Exchanges
from holdfast_sidecar.performance.stragglers.frame import StepFrame
from holdfast_sidecar.performance.stragglers.placement import RankPlace
from holdfast_sidecar.records.steps import ProcessGroup

NODES = ["a", "a", "b", "b", "c", "c", "d", "d"]
ALL = range(8)
ONSET = 41


def from_onset(digest: str, us: int = 60_000):
    return lambda step, group: us if step >= ONSET and group == digest else 0


def test_a_group_whose_exchange_got_slower_is_told_within_ten_steps() -> None:
    told = exchange(grouped(NODES, ALL), ONSET + 20, from_onset("digest-0"))
    first = min(step for step, slow in told.items() if slow)
    assert first <= ONSET + 9
    (slow,) = told[ONSET + 20]
    assert slow.ranks == tuple(ALL)
    assert abs(slow.slowdown - 3.0) < 0.3
    assert abs(slow.since_step - ONSET) <= 2
    assert abs(slow.costs_us - 60_000) < 2_000


def test_a_rank_that_comes_late_makes_nobodys_link_slow() -> None:
    told = exchange(grouped(NODES, ALL), 80, late={3: 150_000})
    assert not any(told.values())


def test_what_smaller_batches_no_longer_hide_is_no_slow_link() -> None:
    exchanges, places = Exchanges(), grouped(NODES, ALL)
    for step in range(1, 80):
        smaller, bared = (150_000, 60_000) if step >= ONSET else (0, 0)
        lines = {
            rank: line(rank, step, forward=280_000 - smaller, wait_1=20_000 + bared)
            for rank in places
        }
        assert not exchanges.follow(StepFrame(step - 1, step, lines), places)


def test_one_slow_step_says_nothing_of_a_link() -> None:
    told = exchange(grouped(NODES, ALL), 80, lambda step, group: 400_000 if step % 20 == 0 else 0)
    assert not any(told.values())


def test_a_link_that_is_as_quick_as_before_is_told_no_more() -> None:
    until = ONSET + 20
    told = exchange(
        grouped(NODES, ALL), until + 20, lambda step, _: 60_000 if ONSET <= step < until else 0
    )
    assert told[until - 1]
    assert not told[until + 10]


def test_what_was_slow_for_long_stays_slow() -> None:
    told = exchange(grouped(NODES, ALL), ONSET + 300, from_onset("digest-0"))
    assert told[ONSET + 300]


def test_steps_in_which_a_member_told_nothing_are_passed_over() -> None:
    # While rank 0 saves, the others wait for it: its own line has no such step.
    saves = lambda step: {0} if step >= ONSET else set()  # noqa: E731
    told = exchange(grouped(NODES, ALL), ONSET + 20, from_onset("digest-0"), without=saves)
    assert not any(told.values())


def test_a_group_that_was_slow_from_the_start_is_seen_beside_those_that_do_the_same() -> None:
    nodes = ["a", "b"] * 5
    pairs = [range(start, start + 2) for start in range(0, 10, 2)]
    places = grouped(nodes, *pairs)
    for place in places.values():
        group = place.groups[0]
        assert group is not None
        same = (ProcessGroup("mesh_dp", group.digest, 2), None, None, None)
        object.__setattr__(place, "groups", same)
    told = exchange(places, 30, lambda _, group: 60_000 if group == "digest-3" else 0)
    (slow,) = told[30]
    assert slow.ranks == (6, 7)
    assert slow.against == "groups that do the same"


def test_more_work_means_a_longer_exchange_and_no_slow_link() -> None:
    places = grouped(NODES, ALL)
    exchanges = Exchanges()
    told = []
    for step in range(1, ONSET + 20):
        twice = 2 if step >= ONSET else 1
        frame = _plain(places, step, 40_000 * twice, 400_000 * twice)
        told.append(exchanges.follow(frame, places))
    assert not any(told)


def test_links_of_a_group_are_not_judged_while_a_member_is_unknown() -> None:
    places = grouped(NODES, ALL)
    del places[7]
    exchanges = Exchanges()
    for step in range(1, 60):
        frame = _plain(places, step, 40_000 if step < ONSET else 400_000, 300_000)
        assert not exchanges.follow(frame, places)
    assert "not all members" in exchanges.unjudged[0]


def with_groups_of_equal_members(title: str) -> dict[int, RankPlace]:
    """What a script gets that makes a second group of all ranks: their names differ, if at all."""
    places = grouped(NODES, ALL)
    for place in places.values():
        first = place.groups[0]
        assert first is not None
        second = ProcessGroup(title or first.title, first.digest, first.size)
        object.__setattr__(place, "groups", (first, second, None, None))
    return places


@pytest.mark.parametrize("title", ["undefined", ""])
def test_two_groups_of_the_same_members_are_followed_each_for_itself(title: str) -> None:
    places, exchanges = with_groups_of_equal_members(title), Exchanges()
    for step in range(1, ONSET + 20):
        longer = 60_000 if step >= ONSET else 0
        lines = {rank: line(rank, step, wait_1=20_000 + longer, wait_2=5_000) for rank in places}
        told = exchanges.follow(StepFrame(step - 1, step, lines), places)
        assert exchanges.unjudged == ()
    (slow,) = told
    assert (slow.group, slow.ranks) == ("group_0", tuple(ALL))


def test_a_group_that_waits_for_nobody_keeps_no_other_of_its_members_from_being_judged() -> None:
    places, exchanges = with_groups_of_equal_members("undefined"), Exchanges()
    for step in range(1, ONSET + 20):
        frame = _plain(places, step, 20_000 if step < ONSET else 80_000, 300_000)
        told = exchanges.follow(frame, places)
    assert [slow.group for slow in told] == ["group_0"]


def _plain(places, step: int, wait: int, forward: int) -> StepFrame:
    lines = {
        rank: line(rank, step, forward=forward, backward=forward, wait_1=wait) for rank in places
    }
    return StepFrame(step - 1, step, lines)
