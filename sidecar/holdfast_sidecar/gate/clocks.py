"""This node's wall clock beside those of the other nodes, by the times in their reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.reports import NodeReport

EVERY_S = 30.0
"""Clocks drift apart over days; one that is set is noticed soon enough."""

BETWEEN_S = 1.0
"""Two looks so far apart: every node that lives has reported in between."""

LEAST_OTHERS = 2
"""Between two clocks nobody can tell which one is wrong."""

LEAST_S = 5.0
"""A report is a second or two old when it is read: less could be just that."""


def how_far_off(ahead_s: Sequence[float], limit_s: float) -> float:
    """By how much this clock is wrong, if most of the others say so; 0: they don't.

    ahead_s: of each other node, by how much this clock is ahead of its.
    """
    limit_s = max(limit_s, LEAST_S)
    if len(ahead_s) < LEAST_OTHERS:
        return 0.0
    for sign in (1.0, -1.0):
        apart = [ahead for ahead in ahead_s if sign * ahead > limit_s]
        if 2 * len(apart) > len(ahead_s):
            return median(apart)
    return 0.0


@dataclass
class ClockWatch:
    """Now and then looks twice: only a report whose beat moved in between is of now."""

    node: str
    limit_s: float
    off_s: float = 0.0
    _due_s: float = float("-inf")
    _beats: dict[str, int] = field(default_factory=dict)

    def look(self, reports: Mapping[str, str], now_s: float, now_unix_s: float) -> float:
        """By how much this clock is wrong, as far as is known; 0: it is right."""
        if now_s < self._due_s:
            return self.off_s
        found = {name: decode(NodeReport, text) for name, text in reports.items()}
        others = [one for one in found.values() if one is not None and one.node != self.node]
        before, self._beats = self._beats, {one.node: one.beat for one in others}
        if self._beats and not before:
            self._due_s = now_s + BETWEEN_S  # the first of two looks
            return self.off_s
        fresh = [one for one in others if before.get(one.node, one.beat) != one.beat]
        times = [one.gate.checked_unix_s for one in fresh if one.gate is not None]
        self.off_s = how_far_off([now_unix_s - at for at in times if at], self.limit_s)
        self._due_s, self._beats = now_s + EVERY_S, {}
        return self.off_s
