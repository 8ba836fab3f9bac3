"""Aligned columns and painted words for people; plain when piped or when NO_COLOR is set."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

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
