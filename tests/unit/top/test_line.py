from __future__ import annotations

import pytest

from holdfast_sidecar.top.drawing.line import (
    Line,
    Look,
    Span,
    columns,
    fitted,
    joined,
    merged,
    plain,
)
from holdfast_sidecar.top.drawing.signs import ASCII, CAN_SHOW, UNICODE, suited
from holdfast_sidecar.top.drawing.visible import width

LINE: Line = (Span("rank "), Span("日本", Look.BAD), Span(" is slow"))


@pytest.mark.parametrize("room", range(20))
def test_a_line_is_cut_with_a_sign_that_something_is_missing(room: int) -> None:
    kept = fitted(LINE, room, UNICODE)
    assert columns(kept) <= room
    if room < columns(LINE):
        assert not room or plain(kept).endswith("…")
    else:
        assert kept == LINE


def test_neighbours_of_one_look_become_one_piece() -> None:
    spans = [Span("a"), Span("b"), Span("c", Look.BAD), Span("d")]
    assert merged(spans) == (Span("ab"), Span("c", Look.BAD), Span("d"))


def test_parts_stand_beside_each_other() -> None:
    assert plain(joined([(Span("a"),), (Span("b"), Span("c"))])) == "a  bc"
    assert joined([]) == ()


def test_every_sign_takes_one_column_and_the_plain_ones_are_ascii() -> None:
    assert all(width(sign) == 1 for sign in CAN_SHOW)
    assert (ASCII.heat + ASCII.bar + ASCII.more + ASCII.chosen).isascii()
    assert len(ASCII.heat) == len(UNICODE.heat) == len(set(ASCII.heat))


@pytest.mark.parametrize(
    ("encoding", "wants_ascii", "is_ascii"),
    [("utf-8", False, False), ("utf-8", True, True), ("latin-1", False, True), (None, False, True)],
)
def test_the_signs_are_those_that_the_terminal_can_show(
    encoding: str | None, wants_ascii: bool, is_ascii: bool
) -> None:
    assert suited(encoding, wants_ascii).is_ascii is is_ascii
