"""Text from anywhere as a terminal may show it: what would steer it stands there to be seen, and
every character takes the columns that it is counted with.

Names and messages come from other people's scripts, host names and exceptions.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

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
