"""Counts what became of coordinated checkpoints, as this node saw the orders end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from holdfast_sidecar.coordination.reports import CheckpointOrder

OUTCOMES = ("complete", "void")


@dataclass
class CheckpointOutcomes:
    """One count per order, however often it is looked at."""

    counts: Counter[str] = field(default_factory=Counter)
    _counted: str = ""

    def see(self, order: CheckpointOrder | None) -> None:
        """Look at the newest order."""
        if order is None or order.state not in OUTCOMES or order.identifier == self._counted:
            return
        self._counted = order.identifier
        self.counts[order.state] += 1
