"""A line of a picture: pieces of text, each with a look. Which colour a look is, is for screens."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from holdfast_sidecar.top.drawing.signs import Signs
from holdfast_sidecar.top.drawing.visible import cut, visible, width


class Look(Enum):
    """How a piece of text is to look. No look says anything that the text does not say, too."""

    PLAIN = "plain"
    DIM = "dim"
    STRONG = "strong"
    HEADING = "heading"
    GOOD = "good"
    DOUBTFUL = "doubtful"
    BAD = "bad"
    HEAT_0 = "heat 0"
    HEAT_1 = "heat 1"
    HEAT_2 = "heat 2"
    HEAT_3 = "heat 3"
    HEAT_4 = "heat 4"
    HEAT_5 = "heat 5"
    HEAT_6 = "heat 6"
    HEAT_7 = "heat 7"


HEAT = tuple(look for look in Look if look.value.startswith("heat "))
"""By level, the lowest first."""


class Span(NamedTuple):
    """A piece of visible text."""

    text: str
    look: Look = Look.PLAIN


Line = tuple[Span, ...]


def said(text: str, signs: Signs, look: Look = Look.PLAIN) -> Span:
    """Text from anywhere, made visible."""
    return Span(visible(text, signs.is_ascii), look)


def plain(line: Line) -> str:
    """Its text alone."""
    return "".join(span.text for span in line)


def columns(line: Line) -> int:
    """How wide it is."""
    return sum(width(span.text) for span in line)


def fitted(line: Line, room: int, signs: Signs) -> Line:
    """A line in so many columns at most."""
    kept: list[Span] = []
    for number, span in enumerate(line):
        # Where more follows, one column is kept for the sign that says so.
        follows = any(later.text for later in line[number + 1 :])
        if width(span.text) + follows > room:
            text = f"{span.text}{signs.more}" if follows else span.text
            return (*kept, Span(cut(text, room, signs.more), span.look))
        kept.append(span)
        room -= width(span.text)
    return tuple(kept)


def joined(parts: Iterable[Line], gap: str = "  ") -> Line:
    """Lines side by side."""
    line: list[Span] = []
    for part in parts:
        line += [Span(gap), *part] if line else part
    return tuple(line)


def merged(spans: Iterable[Span]) -> Line:
    """Neighbours of one look as one piece: a screen sends fewer bytes for them."""
    groups = groupby(spans, key=attrgetter("look"))
    return tuple(Span("".join(span.text for span in of_it), look) for look, of_it in groups)


def changed(before: Line, after: Line) -> tuple[int, int]:
    """From which column on, and for how many, a screen has to show the second line in place of the
    first; 0 columns: they look alike. All of it where characters are wider than a column."""
    old, new = _cells(before), _cells(after)
    if old == new:
        return 0, 0
    widest = max(columns(before), columns(after))
    if len(old) != columns(before) or len(new) != columns(after):
        return 0, widest
    first = _alike(old, new)
    last = _alike(old[first:][::-1], new[first:][::-1]) if len(old) == len(new) else 0
    return first, widest - first - last


def _cells(line: Line) -> list[tuple[str, Look]]:
    return [(character, span.look) for span in line for character in span.text]


def _alike(old: list[tuple[str, Look]], new: list[tuple[str, Look]]) -> int:
    """How many at their beginning are the same."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(old), len(new)))
