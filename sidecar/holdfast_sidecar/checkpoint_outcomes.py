"""Counts what became of coordinated checkpoints, and what they took, as this node saw them end.

Every node counts, so that whoever leads next goes on from the same figures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast_sidecar.coordination.keys import Section
from holdfast_sidecar.local_state import Orders
from holdfast_sidecar.records.checkpoint import CheckpointOrder, LedgerEntry
from holdfast_sidecar.records.codec import decode

OUTCOMES = ("complete", "void", "skipped")
"""Skipped ones were due while another was still being written; who leads counts them."""
TRIGGERS = ("periodic", "manual")
"""Counted from 0; others appear with their first checkpoint."""


@dataclass(frozen=True)
class CheckpointTally:
    """What was counted so far."""

    ended: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """(outcome, trigger) -> orders."""
    measured: int = 0
    """Complete ones whose cost is known."""
    blocked_s: float = 0.0
    """What those kept the loops, in all."""
    write_s: float = 0.0
    """What writing and hashing them took, in all."""


@dataclass
class CheckpointOutcomes:
    """One count per order, however often it is looked at."""

    _ended: Counter[tuple[str, str]] = field(default_factory=Counter)
    _measured: int = 0
    _blocked_s: float = 0.0
    _write_s: float = 0.0
    _counted: str = ""
    _skipped: str = ""

    def see(self, orders: Orders) -> None:
        """Look at the newest order."""
        if orders.skipped and orders.skipped != self._skipped:
            self._ended["skipped", "periodic"] += 1
        self._skipped = orders.skipped or self._skipped
        order = orders.checkpoint
        if order is None or order.state not in OUTCOMES or order.identifier == self._counted:
            return
        self._counted = order.identifier
        self._ended[order.state, order.trigger] += 1
        entry = _entry(orders, order)
        if entry is not None and entry.write_s > 0:
            self._measured += 1
            self._blocked_s += entry.blocked_s
            self._write_s += entry.write_s

    def tally(self) -> CheckpointTally:
        """The counts as they are now."""
        return CheckpointTally(dict(self._ended), self._measured, self._blocked_s, self._write_s)


def _entry(orders: Orders, order: CheckpointOrder) -> LedgerEntry | None:
    """The ledger is written before the order is called complete, so it is in the same view."""
    if orders.view is None or order.state != "complete":
        return None
    text = orders.view.section(Section.LEDGER).get(order.identifier)
    return None if text is None else decode(LedgerEntry, text)
