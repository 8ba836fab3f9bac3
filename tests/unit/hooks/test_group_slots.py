"""Which process groups are timed apart, and what is looked up on the hot path."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.contract import page
from holdfast.contract.page import Word
from holdfast.recording.group_members import digest
from holdfast.recording.group_slots import NO_SLOT, GroupSlots
from holdfast.recording.recorder import Recorder


class Group:
    """Stands for a process group, which is known by its identity."""


def world_of(*groups: tuple[Any, str, int]) -> SimpleNamespace:
    """As torch keeps them: the default group first, then in the order in which they were made."""
    return SimpleNamespace(
        default_pg=groups[0][0] if groups else None,
        pg_names={group: name for group, name, _ in groups},
        pg_group_ranks={group: {rank: rank for rank in range(n)} for group, _, n in groups},
    )


@pytest.fixture
def recorder() -> Recorder:
    return Recorder(bytearray(page.PAGE_SIZE), attempt=0)


@pytest.fixture
def slots(recorder: Recorder) -> GroupSlots:
    return GroupSlots(recorder)


def six() -> list[tuple[Group, str, int]]:
    return [(Group(), name, 4) for name in ("world", "a", "b", "c", "d", "e")]


def test_the_default_group_is_the_first_and_the_next_ones_follow_as_they_were_made(
    slots: GroupSlots,
) -> None:
    groups = six()[:3]
    slots.follow(world_of(*groups))
    assert [slots.slot(group) for group, _, _ in groups] == [0, 1, 2]
    assert [slots.slot(name) for name in ("world", "a", "b")] == [0, 1, 2]
    assert slots.slot(None) == 0
    assert slots.of_names() == {"world": 0, "a": 1, "b": 2}


def test_a_group_of_one_rank_and_what_is_no_group_of_this_rank_have_none(
    slots: GroupSlots,
) -> None:
    world, alone, pair = Group(), Group(), Group()  # held, as torch does: identities return
    slots.follow(world_of((world, "world", 4), (alone, "alone", 1), (pair, "pair", 2)))
    assert (slots.slot(alone), slots.slot(pair)) == (NO_SLOT, 1)
    assert slots.slot(Group()) == slots.slot("elsewhere") == slots.slot(-100) == NO_SLOT


def test_a_job_of_one_rank_has_none_at_all(slots: GroupSlots) -> None:
    only = Group()
    slots.follow(world_of((only, "world", 1)))
    assert slots.slot(None) == slots.slot(only) == NO_SLOT
    assert slots.of_names() == {}


def test_a_fifth_that_is_used_takes_the_place_of_one_that_never_was(slots: GroupSlots) -> None:
    told: list[dict[str, int]] = []
    slots.tell = lambda: told.append(slots.of_names())
    groups = six()
    slots.follow(world_of(*groups))
    slots.count(1, 8)
    assert slots.slot(groups[4][0]) == 3
    assert told == [{"world": 0, "a": 1, "b": 2, "d": 3}]
    slots.count(3, 8)
    assert slots.slot(groups[3][0]) == 2, "whose place was taken takes another's when it is used"
    slots.count(2, 8)
    assert slots.slot("e") == slots.slot(groups[5][0]) == slots.slot("b") == NO_SLOT
    assert slots.of_names() == {"world": 0, "a": 1, "c": 2, "d": 3}
    assert len(told) == 2


def test_the_default_group_keeps_its_place_unused_for_ddp_uses_it_unseen(
    slots: GroupSlots,
) -> None:
    groups = six()
    slots.follow(world_of(*groups))
    for slot in (1, 2, 3):
        slots.count(slot, 8)
    assert slots.slot(groups[4][0]) == NO_SLOT
    assert slots.slot(None) == 0


def test_a_group_that_ended_leaves_its_place_and_the_others_keep_theirs(slots: GroupSlots) -> None:
    groups = six()
    slots.follow(world_of(*groups))
    known = slots.known
    slots.follow(world_of(groups[0], *groups[2:]))
    assert slots.slot(groups[1][0]) == NO_SLOT
    assert slots.of_names() == {"world": 0, "b": 2, "c": 3, "d": 1}
    slots.follow(world_of())
    assert slots.of_names() == {}
    assert slots.slot(None) == NO_SLOT
    assert slots.known is known, "hooks have bound it"


def test_what_is_counted_stands_in_the_page(slots: GroupSlots, recorder: Recorder) -> None:
    slots.follow(world_of(*six()))
    slots.count(2, 100)
    slots.count(2, 20, calls=3)
    slots.count(2, 5, calls=0)
    assert recorder.word(Word.COLLECTIVES_3) == 4
    assert recorder.word(Word.SENT_BYTES_3) == 125
    assert recorder.word(Word.COLLECTIVES_1) == recorder.word(Word.SENT_BYTES_4) == 0


def test_members_are_told_by_one_digest_whoever_tells_it() -> None:
    assert digest([0, 1, 2]) == digest((0, 1, 2))
    assert len({digest([0, 1]), digest([0, 12]), digest([1, 0])}) == 3
    assert len(digest(range(4096))) == 16
