from __future__ import annotations

import pytest

from holdfast_sidecar.cli.tui.text import LONGEST, cut, padded, visible, width, wrapped


@pytest.mark.parametrize(
    ("text", "shown", "in_ascii"),
    [
        ("node-7.rack_2", "node-7.rack_2", "node-7.rack_2"),
        ("\x1b[2J", "␛[2J", "\\x1b[2J"),
        ("a\r\nb\tc", "a␍␊b␉c", "a\\r\\nb\\tc"),
        ("\x7f\x9b1m", "␡\\x9b1m", "\\x7f\\x9b1m"),
        ("a\u202eb", "a\\u202eb", "a\\u202eb"),  # right-to-left override
        ("e\u0301", "e\\u0301", "e\\u0301"),  # stands on the letter before
        ("a\u2028b", "a\\u2028b", "a\\u2028b"),
        ("\ud800", "\\ud800", "\\ud800"),  # half a pair: no terminal's encoding has it
        ("5\N{NO-BREAK SPACE}s", "5 s", "5 s"),
        ("Zürich …", "Zürich …", "Z\\xfcrich ..."),
        ("[bold red]x[/]", "[bold red]x[/]", "[bold red]x[/]"),
    ],
)
def test_what_would_steer_a_terminal_stands_there_to_be_seen(
    text: str, shown: str, in_ascii: str
) -> None:
    assert visible(text) == shown
    assert visible(text, is_ascii=True) == in_ascii


def test_an_endless_text_is_not_followed_to_its_end() -> None:
    assert len(visible("x" * 10_000_000)) == LONGEST
    assert len(visible("é" * 10_000_000)) == LONGEST


@pytest.mark.parametrize(
    ("text", "columns"), [("", 0), ("abc", 3), ("日本", 4), ("é", 1), ("▇", 1)]
)
def test_wide_characters_take_two_columns(text: str, columns: int) -> None:
    assert width(text) == columns


@pytest.mark.parametrize(
    ("text", "room", "kept"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("abcd", 1, "…"),
        ("abcd", 0, ""),
        ("日本語", 4, "日…"),
        ("日本語", 6, "日本語"),
    ],
)
def test_a_text_is_cut_to_its_columns(text: str, room: int, kept: str) -> None:
    assert cut(text, room, "…") == kept
    assert width(kept) <= room


def test_padding_goes_by_columns_not_by_characters() -> None:
    assert padded("日", 4) == "日  "
    assert padded("日", 4, to_right=True) == "  日"


@pytest.mark.parametrize(
    ("text", "room", "lines"),
    [
        ("", 5, [""]),
        ("one two three", 7, ["one two", "three"]),
        ("abcdefgh", 3, ["abc", "def", "gh"]),
        ("a bcdefgh", 3, ["a", "bcd", "efg", "h"]),
        ("head   text", 20, ["head   text"]),
        ("日本語", 2, ["日", "本", "語"]),
    ],
)
def test_lines_are_folded_between_words_where_that_goes(
    text: str, room: int, lines: list[str]
) -> None:
    assert wrapped(text, room) == lines
