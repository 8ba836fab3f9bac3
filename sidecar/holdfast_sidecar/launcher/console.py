"""What people at the console hear of checkpoints: that they fail, and that they do no more."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast_sidecar.records.checkpoint import CheckpointOrder
from holdfast_sidecar.records.formatting import brief, who
from holdfast_sidecar.records.plan import PauseWindow, Plan
from holdfast_sidecar.records.steps import Slowness, SlownessReport


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


# What people at the console hear of pauses: that one begins, until when and why, and its end.


@dataclass
class PauseNews:
    """Tells each pause once, and once that there is none any more."""

    _told: PauseWindow | None = None

    def line(self, plan: Plan | None) -> str:
        """What there is to say of the newest plan; mostly nothing."""
        if plan is None or plan.pause == self._told:
            return ""
        before, self._told = self._told, plan.pause
        if plan.pause is None:
            return "the job is not paused any more" if before is not None else ""
        until = time.strftime("%H:%M:%S", time.localtime(plan.pause.until_unix_s))
        why = f": {plan.pause.reason}" if plan.pause.reason else ""
        return f"paused by {plan.pause.by} until {until}, nothing is done about faults{why}"


# What people at the console hear of who is slow: once, when it lasts, and once that it is over.


@dataclass
class SlownessNews:
    """Tells each that lasts once; what comes and goes is for `holdfast status`."""

    _told: Sequence[Slowness] = ()
    """As they stood last."""
    _attempt: int = -1

    def line(self, standing: SlownessReport | None) -> str:
        """What there is to say of the newest standing; mostly nothing."""
        if standing is None:
            return ""
        if standing.attempt != self._attempt:
            self._told, self._attempt = (), standing.attempt
        told, slow = self._told, standing.slow
        over = [one for one in told if not _is_among(one, slow)]
        kept = [one for one in slow if _is_among(one, told)]
        new = [one for one in slow if one.is_persistent and not _is_among(one, told)]
        self._told = (*kept, *new)
        lines = [f"slow: {brief(one)} (holdfast explain --slow)" for one in new]
        lines += [f"not slow any more: {who(one)}" for one in over]
        return "; ".join(lines)


def _is_among(one: Slowness, others: Sequence[Slowness]) -> bool:
    """Ranks join a trouble and leave it: it is the same one as long as some of them have it."""
    ranks = set(one.ranks)
    return any(
        one.key == other.key or (one.cause is other.cause and not ranks.isdisjoint(other.ranks))
        for other in others
    )
