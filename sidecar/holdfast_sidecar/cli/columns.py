"""How wide a page is: as its terminal where it goes to one, else as wide as reads well."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap

import click

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
