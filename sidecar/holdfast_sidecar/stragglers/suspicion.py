"""What is kept of a rank that may be slow: where its time goes, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence

from holdfast_sidecar.records.steps import StepLine
from holdfast_sidecar.stragglers.change import NEWEST, Verdict
from holdfast_sidecar.stragglers.frame import Excess
from holdfast_sidecar.stragglers.own_time import PARTS, parts_of
from holdfast_sidecar.stragglers.trouble import MOST_CERTAIN

PARTS_SAMPLE = 64
"""Peers whose parts give the usual ones."""

PERSISTENT_S = 30.0
PERSISTENT_STEPS = 30
"""Both: short steps make thirty in a moment, and of steps of a minute one would do."""


CERTAIN = 0.99

Parts = tuple[float, ...]


class Suspicion:
    """Means over a rank's newest frames, since it was first noticed."""

    def __init__(self) -> None:
        self._frames = 0
        self._own_us = 0.0
        self._peers_us = 0.0
        self._parts_us = [0.0] * len(PARTS)
        self._work = 1.0
        self._by_work = 0.0

    def take(self, line: StepLine, own_us: float, peers_us: float, usual: Parts) -> None:
        """One more frame; the last `NEWEST` count."""
        self._frames = min(self._frames + 1, NEWEST)
        share = 1.0 / self._frames
        self._own_us += share * (own_us - self._own_us)
        self._peers_us += share * (peers_us - self._peers_us)
        beyond = [mine - theirs for mine, theirs in zip(parts_of(line), usual, strict=True)]
        self._parts_us = [
            mean + share * (new - mean) for mean, new in zip(self._parts_us, beyond, strict=True)
        ]

    def take_work(self, work: float, by_work: float) -> None:
        """Of the same frame: its work beside its peers', and what that explains."""
        share = 1.0 / self._frames
        self._work += share * (work - self._work)
        self._by_work += share * (by_work - self._by_work)

    def excess(self, rank: int, role: str, verdict: Verdict, slowdown: float, peers: int) -> Excess:
        """What it comes to, in a role of so many."""
        return Excess(
            rank=rank,
            role=role,
            slowdown=round(slowdown, 4),
            confidence=round(confidence(verdict.evidence, peers), 3),
            since_step=verdict.since_step,
            steps=verdict.steps,
            own_us=self._own_us,
            peers_us=self._peers_us,
            parts_us=dict(zip(PARTS, self._parts_us, strict=True)),
            work=round(self._work, 3),
            by_work=round(self._by_work, 4),
            is_persistent=verdict.lasted_s >= PERSISTENT_S and verdict.steps >= PERSISTENT_STEPS,
        )


def confidence(evidence: float, peers: int) -> float:
    """From a cumulated log likelihood ratio. It is divided, as tails are heavier and neighbouring
    steps more alike than the ratio takes them to be."""
    return min(1.0 - math.exp(-evidence / 4.0), MOST_CERTAIN.get(peers, CERTAIN))


def usual_parts(lines: Sequence[StepLine]) -> Parts:
    """Of each part of a step the median."""
    some = lines[:: -(-len(lines) // PARTS_SAMPLE)]
    columns = zip(*map(parts_of, some), strict=True)
    return tuple(float(sorted(column)[len(column) // 2]) for column in columns)
