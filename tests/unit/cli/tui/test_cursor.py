from __future__ import annotations

import pytest

from holdfast_sidecar.cli.tui.state import Cursor

KEYS = [f"rank {rank}" for rank in range(100)]


@pytest.mark.parametrize(
    ("by", "place", "first"),
    [(0, 0, 0), (1, 1, 0), (9, 9, 0), (10, 10, 1), (1_000_000, 99, 90), (-5, 0, 0)],
)
def test_the_chosen_row_is_always_seen(by: int, place: int, first: int) -> None:
    cursor = Cursor().moved(by, KEYS, 10)
    assert (cursor.place, cursor.first, cursor.key) == (place, first, KEYS[place])


def test_going_up_again_moves_the_rows_only_at_the_edge() -> None:
    cursor = Cursor().moved(50, KEYS, 10)
    assert cursor.first == 41
    assert cursor.moved(-9, KEYS, 10).first == 41
    assert cursor.moved(-10, KEYS, 10).first == 40


@pytest.mark.parametrize(("by", "first"), [(0, 0), (3, 3), (1_000_000, 90), (-1, 0)])
def test_where_nothing_can_be_chosen_every_row_moves(by: int, first: int) -> None:
    cursor = Cursor().scrolled(by, KEYS, 10)
    assert cursor.settled(KEYS, 10).first == first
    assert Cursor().scrolled(by, KEYS[:5], 10).first == 0


def test_it_stays_with_its_row_in_another_order() -> None:
    cursor = Cursor().moved(3, KEYS, 10)
    turned = cursor.settled(KEYS[::-1], 10)
    assert (turned.key, turned.place) == ("rank 3", 96)
    assert turned.first <= 96 < turned.first + 10


def test_when_its_row_is_gone_the_neighbour_is_chosen() -> None:
    cursor = Cursor().moved(99, KEYS, 10)
    assert cursor.settled(KEYS[:50], 10) == Cursor("rank 49", 49, 40)
    assert cursor.settled([], 10) == Cursor()
    assert Cursor().moved(1, [], 10) == Cursor()


@pytest.mark.parametrize("room", [0, 1, 10, 1000])
def test_no_row_is_left_blank_while_there_are_more(room: int) -> None:
    cursor = Cursor().moved(99, KEYS, 10).settled(KEYS, room)
    assert cursor.first == max(len(KEYS) - max(room, 1), 0)
