from __future__ import annotations

from collections.abc import Sequence

from holdfast.contract.page import FIRST, UNCLEAR
from holdfast.recording.neighbours import Message, Neighbours


def told(*steps: Sequence[Message]) -> list[tuple[int, tuple[int, ...]]]:
    """What is told of steps with these messages, one after another; the last one is not over."""
    said: list[tuple[int, tuple[int, ...]]] = []
    neighbours = Neighbours(lambda after, beside: said.append((after, beside)))
    for step, messages in enumerate(steps):
        for message in messages:
            neighbours.note(step, [message])
    return said


SENDS, HEARS = True, False
MIDDLE = [(HEARS, 0), (SENDS, 2), (HEARS, 2), (SENDS, 0)]
OVER: list[Message] = [(SENDS, 9)]


def test_a_stage_hears_from_the_one_before_it_first_and_from_the_other_later() -> None:
    assert told(MIDDLE, MIDDLE, MIDDLE, MIDDLE, OVER) == [(0, (0, 2))]
    first = [(SENDS, 1), (HEARS, 1)]
    assert told(first, first, OVER) == [(FIRST, (1,))]


def test_one_step_says_nothing() -> None:
    assert told(MIDDLE, OVER) == told(MIDDLE, OVER, MIDDLE, OVER) == []


def test_messages_in_one_direction_make_nobody_a_neighbour() -> None:
    ring = [(SENDS, 2), (HEARS, 0)]
    assert told(ring, ring, ring, OVER) == []
    gathered = [(HEARS, 1), (HEARS, 2), (HEARS, None)]
    assert told(gathered, gathered, gathered, OVER) == []


def test_a_step_unlike_the_others_makes_it_unclear_for_good() -> None:
    other = [(SENDS, 2), (HEARS, 2)]
    assert told(MIDDLE, MIDDLE, other, MIDDLE, other, OVER) == [(0, (0, 2)), (UNCLEAR, (2,))]


def test_messages_in_both_directions_at_once_say_nothing_of_who_is_first() -> None:
    said: list[tuple[int, tuple[int, ...]]] = []
    neighbours = Neighbours(lambda after, beside: said.append((after, beside)))
    for step in range(4):
        neighbours.note(step, [(SENDS, 1), (HEARS, 1)])
    assert said == [(UNCLEAR, (1,))]
