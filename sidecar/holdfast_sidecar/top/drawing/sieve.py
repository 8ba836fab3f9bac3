"""Which rows have the words that somebody looks for. Pure.

A whole number means a rank, `8-15` ranks from 8 to 15, anything else what stands in the row. All of
several words have to be there.
"""

from __future__ import annotations

import re

_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def passes(words: str, texts: tuple[str, ...], ranks: tuple[int, ...] = ()) -> bool:
    """Whether a row about these ranks, with these texts, is looked for."""
    return all(_has(word, texts, ranks) for word in words.casefold().split())


def _has(word: str, texts: tuple[str, ...], ranks: tuple[int, ...]) -> bool:
    numbers = _RANGE.fullmatch(word)
    if numbers and ranks:
        least = int(numbers[1])
        most = int(numbers[2] or least)
        return any(least <= rank <= most for rank in ranks)
    return any(word in text.casefold() for text in texts)
