"""A line of a picture: pieces of text, each with a look. Which colour a look is, is for screens."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from holdfast_sidecar.cli.tui.state import ViewState
from holdfast_sidecar.export.live.view import LiveView

# Figures in the few columns that a table has for them.

UNKNOWN = "-"

_SECONDS = ((0.9995, 1e3, "{:.0f}ms"), (9.995, 1, "{:.2f}s"), (99.95, 1, "{:.1f}s"))
_LONGER = ((599.5, 1, "s"), (7200, 60, "m"), (172800, 3600, "h"))


def short_span(seconds: float | None) -> str:
    """A length of time in five columns: `350ms`, `1.21s`, `12m`."""
    if seconds is None:
        return UNKNOWN
    seconds = max(seconds, 0.0)
    for below, factor, form in _SECONDS:
        if seconds < below:
            return form.format(seconds * factor)
    for below, unit_s, unit in _LONGER:
        if seconds < below:
            return f"{seconds / unit_s:.0f}{unit}"
    return f"{seconds / 86400:.0f}d"


def number(count: int | None) -> str:
    """`12,345`."""
    return UNKNOWN if count is None else f"{count:,}"


def amount(count: float) -> str:
    """`950`, `12.3k`, `4.5M`."""
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= factor:
            return f"{count / factor:.1f}{unit}"
    return f"{count:.0f}"


def share(part: float | None, digits: int = 0) -> str:
    """`93%`, of a share from 0 to 1."""
    return UNKNOWN if part is None else f"{part * 100:.{digits}f}%"


def counted(count: int, what: str) -> str:
    """`1 rank`, `64 ranks`."""
    return f"{count:,} {what}{'s' * (count != 1)}"


# The signs that pictures are made of: of Unicode, or ASCII for terminals and fonts without.


@dataclass(frozen=True)
class Signs:
    """One set of them. Each is one column wide."""

    heat: str
    """One for each level of the ramp: they rise, so that it is read without colours too."""
    bar: str
    more: str
    """In place of what there is no room for."""
    chosen: str
    """Before the row that Enter opens."""
    is_ascii: bool = False
    """Whether other texts have to be spelt in ASCII, too."""


UNICODE = Signs(heat="▁▂▃▄▅▆▇█", bar="█", more="…", chosen="▶")
ASCII = Signs(heat=".:-=+*#@", bar="#", more="~", chosen=">", is_ascii=True)

CAN_SHOW = "".join((UNICODE.heat, UNICODE.bar, UNICODE.more, UNICODE.chosen))


def suited(encoding: str | None, wants_ascii: bool) -> Signs:
    """Those that a stream with this encoding can show."""
    if wants_ascii:
        return ASCII
    try:
        CAN_SHOW.encode(encoding or "ascii")
    except (UnicodeError, LookupError):
        return ASCII
    return UNICODE


# Text from anywhere as a terminal may show it: what would steer it stands there to be seen, and
# every character takes the columns that it is counted with.
#
# Names and messages come from other people's scripts, host names and exceptions.

LONGEST = 4096
"""Of one text; a terminal has no room for more, and an exception's words may be megabytes."""

SPELT = {"…": "...", "–": "-", "—": "-", "×": "x", "°": "", "’": "'", "→": "->", "µ": "u"}
"""Signs of our own sentences, where there is only ASCII."""

ATTACHED = ("Mn", "Me")
"""Categories that take no column but stand on the character before: hundreds fit on one."""


def visible(text: str, is_ascii: bool = False) -> str:
    """The text with everything that is not simply a character written out."""
    return _visible(text[:LONGEST], is_ascii)


@lru_cache(maxsize=4096)
def _visible(text: str, is_ascii: bool) -> str:
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(character, is_ascii) for character in text)


def _shown(character: str, is_ascii: bool) -> str:
    if character == "\N{NO-BREAK SPACE}":
        return " "
    code = ord(character)
    if character.isprintable() and unicodedata.category(character) not in ATTACHED:
        if not is_ascii or code < 128:
            return character
        return SPELT.get(character, _escaped(character))
    if is_ascii:
        return _escaped(character)
    if code < 32:
        return chr(0x2400 + code)  # U+241B for escape, and so on
    return "\N{SYMBOL FOR DELETE}" if code == 127 else _escaped(character)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def width(text: str) -> int:
    """Columns of a visible text."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text)


def cut(text: str, room: int, more: str) -> str:
    """A visible text in so many columns at most, `more` at its end where something is missing."""
    if width(text) <= room:
        return text
    if room <= 0:
        return ""
    kept, taken = "", 0
    for one in text:
        taken += width(one)
        if taken > room - 1:
            break
        kept += one
    return kept + more


def padded(text: str, room: int, to_right: bool = False) -> str:
    """A visible text in just so many columns, if it is not wider."""
    blank = " " * (room - width(text))
    return blank + text if to_right else text + blank


def wrapped(text: str, room: int) -> list[str]:
    """A visible text in lines of so many columns at most, parted between words where that goes."""
    lines, line = [], ""
    for word in text.split(" "):
        if width(line) + width(word) + bool(line) <= room:
            line = f"{line} {word}" if line else word
            continue
        lines += [line] if line else []
        *full, line = _pieces(word, room)
        lines += full
    return [*lines, line]


def _pieces(word: str, room: int) -> list[str]:
    pieces, piece, taken = [], "", 0
    for one in word:
        if piece and taken + width(one) > room:
            pieces.append(piece)
            piece, taken = "", 0
        piece += one
        taken += width(one)
    return [*pieces, piece]


class TextStyle(Enum):
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


HEAT = tuple(look for look in TextStyle if look.value.startswith("heat "))
"""By level, the lowest first."""


class Span(NamedTuple):
    """A piece of visible text."""

    text: str
    look: TextStyle = TextStyle.PLAIN


Line = tuple[Span, ...]


def said(text: str, signs: Signs, look: TextStyle = TextStyle.PLAIN) -> Span:
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


def _cells(line: Line) -> list[tuple[str, TextStyle]]:
    return [(character, span.look) for span in line for character in span.text]


def _alike(old: list[tuple[str, TextStyle]], new: list[tuple[str, TextStyle]]) -> int:
    """How many at their beginning are the same."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(old), len(new)))


# What a pane is drawn from, and what it becomes. Plain data.


@dataclass(frozen=True)
class Canvas:
    """A view, what somebody chose of it, and the room there is."""

    view: LiveView
    choice: ViewState
    width: int
    height: int
    """Rows that fit below the title."""
    signs: Signs


@dataclass(frozen=True)
class Body:
    """A pane: a title that stays, and rows that may be more than fit."""

    title: Line
    keys: Sequence[str]
    """By which a row is known again when the next view comes."""
    draw: Callable[[int], Line]
    """Row by number. Asked only for those that are seen: a thousand are not drawn for forty."""
    empty: str = ""
    """What is said where there is no row."""

    def rows(self, first: int, count: int) -> list[Line]:
        """Those from `first` on that there are."""
        return [self.draw(number) for number in range(first, min(first + count, len(self.keys)))]


def listed(title: Line, lines: Sequence[Line], empty: str = "") -> Body:
    """A pane of lines that are drawn already; rows are known by their number."""
    keys = [str(number) for number in range(len(lines))]
    return Body(title, keys, lines.__getitem__, empty)


def read_in_full(title: str, paragraphs: Iterable[str], canvas: Canvas) -> Body:
    """One thing, all of it: each paragraph in as many rows as it takes."""
    head = (Span(visible(title, canvas.signs.is_ascii), TextStyle.STRONG),)
    lines: list[Line] = []
    for paragraph in paragraphs:
        text = visible(paragraph, canvas.signs.is_ascii)
        lines += [(Span(piece),) for piece in wrapped(text, max(canvas.width, 1))]
    return listed(head, lines)
