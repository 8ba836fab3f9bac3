"""Checkpoint storage in trouble: it does not answer, or is slower than checkpoints come."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.findings import Finding, Kind

SILENT_S = 60.0
"""No byte moved and nothing answered. Listing a large bucket takes seconds, and so does importing
torch where ranks keep all cores busy; and nobody has to act within a minute."""


def find_slow_storage(silent_s: float, skipped: str, moment: Moment) -> Iterator[Finding]:
    """`silent_s`: how long a question has been open without a sign of life. `skipped`: which
    checkpoint is still being written although the next was due."""
    if silent_s >= SILENT_S:
        text = f"checkpoint storage has not answered for {silent_s:.0f} s; training goes on"
        yield _finding(text, "answer", moment)
    if skipped:
        text = f"checkpoint {skipped} is still being written though the next one was due: skipped"
        yield _finding(text, "write", moment)


def _finding(text: str, what: str, moment: Moment) -> Finding:
    return Finding(Kind.STORAGE_SLOW, moment.node, moment.now_unix_s, 0.9, [], [text], what=what)
