"""Aligned columns and painted words for people; plain when piped or when NO_COLOR is set."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from typing import TextIO

import click

GOOD, BAD, DOUBTFUL = "green", "red", "yellow"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows under their headings; columns of numbers are set to the right."""
    columns = list(zip(headings, *rows, strict=True))
    widths = [max(len(click.unstyle(cell)) for cell in column) for column in columns]
    is_number = [bool(rows) and all(_is_number(cell) for cell in column[1:]) for column in columns]
    lines = [
        "  ".join(
            _pad(cell, width, to_right)
            for cell, width, to_right in zip(row, widths, is_number, strict=True)
        ).rstrip()
        for row in (headings, *rows)
    ]
    return "\n".join(lines)


def paint(text: str, colour: str) -> str:
    """The text in this colour, where colours are wanted."""
    return click.style(text, fg=colour) if wants_colour() else text


def wants_colour() -> bool:
    """Colours go to a terminal only, and never against NO_COLOR."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def size(count: int) -> str:
    """Bytes as people say them."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} B"


def _is_number(cell: str) -> bool:
    return not cell or cell == "-" or cell.lstrip("+-")[:1].isdigit()


def _pad(cell: str, width: int, to_right: bool) -> str:
    blank = " " * (width - len(click.unstyle(cell)))
    return blank + cell if to_right else cell + blank


# How wide a page is: as its terminal where it goes to one, else as wide as reads well.

MOST = 100
"""Advice is a sentence or two, which few terminals hold in one line; longer lines read badly."""

LEAST = 50
"""Below it names and figures leave no room for anything; the terminal may fold the lines then."""

_KEPT = "\N{NO-BREAK SPACE}"
_A_UNIT = re.compile(r"(?<=\d) (?=(?:ms|s|min|h|d)\b|%)")
"""A number and its unit stay together."""

BAR, LEAST_BAR = 40, 8


def columns() -> int:
    """Of a page on stdout."""
    if not sys.stdout.isatty():
        return MOST
    return min(max(shutil.get_terminal_size((MOST, 24)).columns, LEAST), MOST)


def bar_width(taken: int) -> int:
    """Columns of the longest bar, where names and figures take so many of a line."""
    return min(max(columns() - taken, LEAST_BAR), BAR)


def folded(line: str, indent: int) -> str:
    """A line as it stands, or on a terminal that is narrower folded, its rest indented. Scripts
    that read a page find whole lines."""
    if not sys.stdout.isatty() or len(click.unstyle(line)) <= columns():
        return line
    return "\n".join(wrapped("", line, indent, first=""))


def wrapped(head: str, text: str, indent: int, first: str | None = None) -> list[str]:
    """Lines of a page that begin with a word of their own; the text stands below itself."""
    lines = textwrap.wrap(
        _A_UNIT.sub(_KEPT, text),
        width=columns(),
        initial_indent=f"{head:<{indent}}" if first is None else first,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_KEPT, " ") for line in lines]


# How far something long is, for who waits: one line that changes, or a few lines in a log.

EVERY_S = 10.0
"""In a log, the same work is told of so often at most."""


class ProgressLine:
    """Tells of states as they come; the first word of a state says which work it is about."""

    def __init__(
        self, stream: TextIO, is_quiet: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream
        self._is_quiet = is_quiet
        self._is_terminal = stream.isatty()
        self._clock = clock
        self._told = ""
        self._told_at_s = 0.0

    def tell(self, state: str) -> None:
        """Say it, unless it is nothing new."""
        if self._is_quiet or state == self._told:
            return
        if self._is_terminal:
            self._write(f"\r\x1b[K{state} …")
        elif self._is_news(state):
            self._write(f"{state} …\n")
        else:
            return
        self._told, self._told_at_s = state, self._clock()

    def close(self) -> None:
        """Let what follows begin on a clean line."""
        if self._is_terminal and self._told:
            self._write("\r\x1b[K")
            self._told = ""

    def _is_news(self, state: str) -> bool:
        is_same_work = state.split(" ", 1)[0] == self._told.split(" ", 1)[0]
        return not is_same_work or self._clock() - self._told_at_s >= EVERY_S

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
