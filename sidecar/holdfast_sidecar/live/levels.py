"""How slow a cell of the heat map is, in one of ninety levels that a character of its own tells.

A level is two percent: finer than what anybody sees of a colour, or can say of one step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

LEVELS = 90

LOWEST = 0.7
"""A rank that takes less of the time than this has nothing to do; how little tells nobody more."""

STEP = 1.02
"""So that the highest level is four times the median: slower than that is a rank that stands."""

NOTHING = 0
"""In place of a level, and of a phase: nothing was told."""

_FIRST, _BACKSLASH = 0x23, 0x5C
"""From `#` on, but for the backslash, no printable character needs escaping in JSON."""

ALPHABET = "".join(chr(code) for code in range(_FIRST, 0x7F) if code != _BACKSLASH)
"""A character for nothing, and one for each level."""

_TO_WIRE = bytes(ord(ALPHABET[min(at, len(ALPHABET) - 1)]) for at in range(256))
_FROM_WIRE = {sign: at for at, sign in enumerate(ALPHABET)}


def level_of(ratio: float) -> int:
    """The level, from 1 on; what is beyond an end stands at that end."""
    if not ratio > LOWEST:
        return 1
    return 1 + round(min(LEVELS - 1.0, math.log(ratio / LOWEST) / math.log(STEP)))


RATIOS: tuple[float | None, ...] = (
    None,
    *(round(LOWEST * STEP**at, 3) for at in range(LEVELS)),
)
"""What each level stands for; None for NOTHING."""

_KNOWN: dict[float | None, int] = {ratio: level for level, ratio in enumerate(RATIOS)}


def levels_of(ratios: Iterable[float | None]) -> list[int]:
    """The same of many: most stood for a level before, which need not be worked out again."""
    known = _KNOWN
    return [known[one] if one in known else level_of(one or 0.0) for one in ratios]


def spell(levels: Iterable[int]) -> str:
    """Levels, or other numbers as small, as a text of as many characters."""
    return bytes(levels).translate(_TO_WIRE).decode()


def parse(text: str) -> list[int]:
    """The same back; a sign that is none of ours tells nothing."""
    return [_FROM_WIRE.get(sign, NOTHING) for sign in text]
