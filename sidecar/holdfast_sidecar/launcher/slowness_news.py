"""What people at the console hear of who is slow: once, when it lasts, and once that it is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast_sidecar.records.formatting import brief, who
from holdfast_sidecar.records.steps import Slowness, SlowStanding


@dataclass
class SlownessNews:
    """Tells each that lasts once; what comes and goes is for `holdfast status`."""

    _told: Sequence[Slowness] = ()
    """As they stood last."""
    _attempt: int = -1

    def line(self, standing: SlowStanding | None) -> str:
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
