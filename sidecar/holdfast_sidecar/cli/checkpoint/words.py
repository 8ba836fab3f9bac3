"""What the checkpoint commands call things, painted."""

from __future__ import annotations

from holdfast_sidecar.checkpoint.ledger import Kept
from holdfast_sidecar.cli.checkpoint.shelf import Shelf
from holdfast_sidecar.cli.table import BAD, DOUBTFUL, GOOD, paint
from holdfast_sidecar.records.formatting import span


def standing(kept: Kept, shelf: Shelf) -> str:
    """Its verdict, or why a restart would not try it."""
    if kept.is_poisoned:
        return paint(f"poisoned: {kept.poisoned_for}" if kept.poisoned_for else "poisoned", BAD)
    if not kept.is_whole:
        return paint("damaged: files are missing or cut off", BAD)
    if not kept.manifest.is_finite:
        return paint("its numbers are not finite", BAD)
    if kept.identifier not in shelf.resume:
        return paint(f"{kept.verdict}, on an abandoned branch", DOUBTFUL)
    return paint(kept.verdict, GOOD)


def age(then_unix_s: float, now_unix_s: float) -> str:
    """How long ago, for people; clocks of two machines may differ a little."""
    return f"{span(max(now_unix_s - then_unix_s, 0.0))} ago"
