"""What people at the console hear of checkpoints: that they fail, and that they do no more."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_sidecar.records.checkpoint import CheckpointOrder


@dataclass
class CheckpointNews:
    """Tells a trouble once, however often it comes again."""

    _seen: str = ""
    _trouble: str = ""

    def line(self, order: CheckpointOrder | None) -> str:
        """What there is to say of the newest order; mostly nothing."""
        if order is None or order.state not in ("void", "complete"):
            return ""
        if order.identifier == self._seen or not order.path:
            return ""
        self._seen = order.identifier
        if order.state == "complete":
            had_trouble, self._trouble = bool(self._trouble), ""
            return f"checkpoints are written again: step {order.step}" if had_trouble else ""
        if not order.trouble or order.reason == self._trouble:
            return ""
        self._trouble = order.reason
        return order.trouble
