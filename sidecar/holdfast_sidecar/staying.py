"""Why a sidecar that may leave stays, in a file that its launcher reads, and what it says last."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Stay:
    """A reason, and for how long it holds at most."""

    words: str
    most_s: float
    gives_way: bool
    """A launcher that is about to be killed does not wait for this."""


WRITING = Stay("a checkpoint is being written", 60.0, gives_way=False)
"""A launcher waits for this, and a machine's shutdown is seldom longer; ten times what a snapshot
of a few gigabytes takes to a local disk."""

TELLING = Stay("the next scrape is to hear of the end", 20.0, gives_way=True)
"""For a Prometheus to come by and hear how the run ended: an interval of 15 s, and some."""

_LAST = "last: "


def write_stay(path: Path, stay: Stay) -> None:
    """Leave word. Raises OSError."""
    path.write_text(stay.words, encoding="utf-8")


def read_stay(path: Path) -> Stay | None:
    """What is left there; None: nothing, or nothing that is understood."""
    try:
        words = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    return next((stay for stay in (WRITING, TELLING) if stay.words == words), None)


def write_last_word(path: Path, line: str) -> None:
    """Leave what people at the console are to hear of what was waited for. Raises OSError."""
    path.write_text(_LAST + line, encoding="utf-8")


def read_last_word(path: Path) -> str:
    """What was left so; empty: nothing."""
    try:
        words = path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
    return words.removeprefix(_LAST) if words.startswith(_LAST) else ""
