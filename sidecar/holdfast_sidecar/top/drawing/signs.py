"""The signs that pictures are made of: of Unicode, or ASCII for terminals and fonts without."""

from __future__ import annotations

from dataclasses import dataclass


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
