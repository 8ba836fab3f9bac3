from __future__ import annotations

import pytest

from holdfast_sidecar.cli.tui.text import (
    ASCII,
    CAN_SHOW,
    UNICODE,
    Line,
    Span,
    TextStyle,
    changed,
    columns,
    fitted,
    joined,
    merged,
    plain,
    suited,
    width,
)

LINE: Line = (Span("rank "), Span("日本", TextStyle.BAD), Span(" is slow"))


@pytest.mark.parametrize("room", range(20))
def test_a_line_is_cut_with_a_sign_that_something_is_missing(room: int) -> None:
    kept = fitted(LINE, room, UNICODE)
    assert columns(kept) <= room
    if room < columns(LINE):
        assert not room or plain(kept).endswith("…")
    else:
        assert kept == LINE


def test_neighbours_of_one_look_become_one_piece() -> None:
    spans = [Span("a"), Span("b"), Span("c", TextStyle.BAD), Span("d")]
    assert merged(spans) == (Span("ab"), Span("c", TextStyle.BAD), Span("d"))


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


def line(text: str) -> Line:
    """A capital letter is bad news."""
    looks = [TextStyle.BAD if one.isupper() else TextStyle.PLAIN for one in text]
    return merged(Span(one.lower(), look) for one, look in zip(text, looks, strict=True))


@pytest.mark.parametrize(
    ("before", "after", "region"),
    [
        ("rank 5", "rank 5", (0, 0)),
        ("rank 5", "rank 6", (5, 1)),
        ("rank 5 is well", "rank 6 is well", (5, 1)),
        ("rank 5 is well", "rank 6 is wall", (5, 7)),
        ("rank 5", "raNk 5", (2, 1)),  # in another look
        ("rank 5", "rank", (4, 2)),  # what was there has to go
        ("rank", "rank 5", (4, 2)),
        ("", "abc", (0, 3)),
        ("aaaa", "aaa", (3, 1)),
        ("日本 5", "日本 6", (0, 6)),  # half a character can't be sent
        ("ab日", "abc", (0, 4)),
    ],
)
def test_only_what_looks_different_is_sent_again(
    before: str, after: str, region: tuple[int, int]
) -> None:
    assert changed(line(before), line(after)) == region
