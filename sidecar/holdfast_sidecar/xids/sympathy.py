"""Which XIDs merely follow from something else: another XID, or the end of the job. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast_sidecar.records.findings import Remedy
from holdfast_sidecar.xids.occurrence import Occurrence
from holdfast_sidecar.xids.table import NVLINK5

SYMPATHETIC = frozenset({43, 45, 94, 95})
"""What the driver says of programs and memory once something else has gone wrong."""

ROOTS = frozenset({48, 63, 64, 79, 119, 120, 140}) | NVLINK5
"""What they follow from, when it occurred first on the same GPU."""

WINDOW_S = 60.0
"""A faulting GPU's programs are cleaned up within seconds, a node's worth of them within a minute
(77 healthy nodes were flagged by one job's XID 45s; NVSentinel, pull request 1629)."""

OF_TEARDOWN = frozenset({13, 31, 43, 45})
"""What a program may cause while it is ended from outside."""

TEARDOWN_S = 60.0
"""A launcher waits 30 s between its two signals, and the driver cleans up after the second."""


def root_of(one: Occurrence, earlier: Iterable[Occurrence]) -> Occurrence | None:
    """What this one follows from; None: it stands for itself.

    earlier: what was judged of the same GPU. An uncontained memory error (95) keeps its reset
    unless the root asks for as much: a row that was noted for remapping (63) asks for nothing, and
    the memory would be used again.
    """
    if one.number not in SYMPATHETIC:
        return None
    for other in earlier:
        is_root = other.number in ROOTS and _comes_first(other, one)
        asked = other.asked or Remedy.NONE
        if is_root and (one.number != 95 or asked.blames_hardware):
            return other
    return None


def is_of_teardown(one: Occurrence, teardowns: Iterable[float]) -> bool:
    """Whether the launcher had just begun to end the ranks."""
    return one.number in OF_TEARDOWN and any(
        began_s <= one.first_s <= began_s + TEARDOWN_S for began_s in teardowns
    )


def _comes_first(other: Occurrence, one: Occurrence) -> bool:
    return other.boot == one.boot and one.first_s - other.last_s <= WINDOW_S
