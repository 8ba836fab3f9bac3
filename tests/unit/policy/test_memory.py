from __future__ import annotations

import pytest

from holdfast_sidecar.policy.replication import (
    Margin,
    SnapshotSpace,
    Wish,
    gigabytes,
    plan_memory,
    rungs_given_up,
)

GB = 10**9
MIB = 2**20

ALONE = Wish(slots=3, share=0.5)
AMONG_OTHERS = Wish(slots=3, share=0.5, copies=True, slots_for_copies=1)


def room(shared: int, memory: int | None = None, group: int | None = None) -> SnapshotSpace:
    return SnapshotSpace(shared, shared if memory is None else memory, group)


@pytest.mark.parametrize(
    ("free", "slots", "copies"),
    [
        (24 * GB, 4, True),  # 2 ranks x (4 slots + 2 copies) x 1 GB, half of what is free
        (24 * GB - 2, 3, False),
        (12 * GB, 3, False),
        (12 * GB - 2, 2, False),
        (8 * GB, 2, False),
        (8 * GB - 2, 1, False),
        (4 * GB, 1, False),
        (4 * GB - 2, 0, False),
        (0, 0, False),
        (-5 * GB, 0, False),
    ],
)
def test_copies_go_first_then_slot_by_slot(free: int, slots: int, copies: bool) -> None:
    plan = plan_memory([GB, GB], room(free), AMONG_OTHERS)
    assert (plan.slots, plan.copies) == (slots, copies)
    assert plan.size_bytes == 2 * GB * (slots + 2 * copies)
    assert bool(plan.short_of) == (not copies)


def test_a_node_alone_wants_no_copies_and_is_short_of_nothing_without() -> None:
    plan = plan_memory([GB, GB], room(100 * GB), ALONE)
    assert (plan.slots, plan.copies, plan.short_of) == (3, False, "")


@pytest.mark.parametrize(
    ("found", "short_of"),
    [
        (room(0, 64 * GB), "shared_memory"),
        (room(64 * GB, 1 * GB), "memory"),
        (room(64 * GB, 64 * GB, group=1 * GB), "memory"),
        (room(64 * GB, 64 * GB, group=0), "memory"),
    ],
)
def test_what_there_is_least_of_is_named(found: SnapshotSpace, short_of: str) -> None:
    plan = plan_memory([GB], found, ALONE)
    assert (plan.slots, plan.short_of) == (0, short_of)


def test_64_mb_of_shared_memory_leave_nothing_beside_the_reserve() -> None:
    plan = plan_memory([300 * MIB], room(64 * MIB - 64 * MIB, 64 * GB), ALONE)
    assert plan.slots == 0
    assert plan.why == (
        "snapshots: none, of 0.0 MB free; 3 slots would take 0.9 GB, and 50% of the free shared "
        "memory may be taken"
    )


def test_64_mb_are_enough_for_a_small_model_when_the_reserve_is_small() -> None:
    assert plan_memory([4 * MIB, 4 * MIB], room(48 * MIB, 64 * GB), ALONE).slots == 3


def test_a_rung_that_could_not_be_made_is_not_tried_again() -> None:
    found = room(100 * GB)
    rungs = [plan_memory([GB], found, AMONG_OTHERS, failures) for failures in range(7)]
    assert [(plan.slots, plan.copies) for plan in rungs] == [
        (4, True),
        (3, False),
        (2, False),
        (1, False),
        (0, False),
        (0, False),
        (0, False),
    ]


@pytest.mark.parametrize(
    ("free", "limit", "given_up"),
    [
        (100 * GB, 100 * GB, 0),
        (10 * GB, 100 * GB, 0),
        (10 * GB - 1, 100 * GB, 1),
        (0, 100 * GB, 1),
        (-1, 100 * GB, 1),
    ],
)
def test_a_job_with_less_than_a_tenth_left_takes_a_rung(
    free: int, limit: int, given_up: int
) -> None:
    plan = plan_memory([GB, GB], room(100 * GB), AMONG_OTHERS)
    assert rungs_given_up(plan, Margin(free, limit)) == given_up


def test_the_job_takes_one_rung_after_the_other_until_there_is_none() -> None:
    rungs, given_up = [], 0
    for _ in range(6):
        plan = plan_memory([GB], room(100 * GB), AMONG_OTHERS, given_up=given_up)
        rungs.append((plan.slots, plan.copies, plan.short_of))
        given_up = rungs_given_up(plan, Margin(1, 100)) or given_up
    assert rungs == [
        (4, True, ""),
        (3, False, "memory"),
        (2, False, "memory"),
        (1, False, "memory"),
        (0, False, "memory"),
        (0, False, "memory"),
    ]


def test_what_the_job_took_is_said_so() -> None:
    plan = plan_memory([GB], room(100 * GB), ALONE, given_up=1)
    assert plan.why == (
        "snapshots: 1 rank x 2 slots x 1.0 GB = 2.0 GB of 100.0 GB free; less than 10% of its "
        "memory was left to the job, so snapshots take less until the next attempt"
    )


def test_the_reckoning_is_in_peoples_words() -> None:
    found = room(11 * GB, 20 * GB)
    wish = Wish(slots=3, share=1.0, copies=True)
    assert plan_memory([900 * 10**6, 600 * 10**6], found, wish).why == (
        "snapshots: 2 ranks x 3 slots x 0.9 GB + peer copies 3.0 GB = 7.5 GB of 11.0 GB free"
    )


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0.0 MB"), (32_400_000, "32 MB"), (1.06e9, "1.1 GB"), (2e12, "2000.0 GB")],
)
def test_sizes_are_short(size: float, text: str) -> None:
    assert gigabytes(size) == text
