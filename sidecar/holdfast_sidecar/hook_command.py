"""A command of the user's as the settings have it: its words, and the places in them. Pure."""

from __future__ import annotations

import re
import shlex

NAMES = ("node", "reason", "gpu", "remedy")

PLACE = re.compile(r"\{(" + "|".join(NAMES) + r")\}")
"""What stands in a command for what it is about."""

_LIKE_A_PLACE = re.compile(r"\{([A-Za-z_]+)\}")
"""What was most likely meant as one. JSON or a shell's own braces hold more than a name."""


def split(command: str) -> list[str]:
    """Its words, as a shell would split them. Raises ValueError where that can't be done, or there
    is none."""
    words = shlex.split(command)
    if not words:
        raise ValueError("no command is set")
    return words


def problem(command: str) -> str:
    """Why it could never be run; empty: nothing is wrong with its form, or none is set."""
    if not command:
        return ""
    try:
        words = split(command)
    except ValueError as error:
        return f"can't be split into words: {error}"
    for name in (name for word in words for name in _LIKE_A_PLACE.findall(word)):
        if name not in NAMES:
            known = ", ".join(f"{{{one}}}" for one in NAMES)
            return f"names {{{name}}}, for which nothing is known; known: {known}"
    return ""


def program(command: str) -> str:
    """What it starts; empty where none is set, or that depends on what it is about."""
    first = split(command)[0] if command else ""
    return "" if PLACE.search(first) else first
