"""What speaks of a rank beside its pace: its own signals, and those of its healthy peers.

Shares are parts of one, times microseconds of a step.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from holdfast_sidecar.records.steps import StepLine
from holdfast_sidecar.stragglers.own_time import PARTS

SAMPLE = 32
"""Peers whose middle is taken: the middle of so many is within a few percent of that of thousands,
whichever way the signal is spread."""

FORGETS = 0.8
"""What a step leaves of what was known before: some five steps make the mean, so that a burst of
one step is no signal, and a signal that came up shows within ten."""


class Signals(NamedTuple):
    """What a rank's line, or the middle of several, says of why it takes as long as it does."""

    total: float
    data: float
    transfer: float
    forward: float
    backward: float
    optimizer: float
    other: float
    collector: float
    compiled: float
    """Share of steps in which something was compiled."""
    cpu: float
    """Cores; 0: not known."""
    queued: float
    throttled: float
    faults_per_s: float
    storage: float
    clock: float
    """0: not known."""

    def part(self, name: str) -> float:
        """Time of that part of a step."""
        return float(getattr(self, name)) if name in PARTS else 0.0


def read(line: StepLine) -> Signals:
    """The signals of one line."""
    return Signals(
        line.total,
        line.data,
        line.transfer,
        line.forward,
        line.backward if line.waits_seen else 0,
        line.optimizer,
        line.other,
        line.collector,
        line.compiled / max(1, line.stride),
        line.cpu_permille / 1000,
        line.queued_permille / 1000,
        line.throttled_permille / 1000,
        line.faults_per_s,
        line.storage_permille / 1000,
        line.clock_permille / 1000,
    )


def middle(lines: Sequence[StepLine]) -> Signals | None:
    """Signal by signal the median of them, or of some of them; None of none."""
    if not lines:
        return None
    some = lines[:: max(1, len(lines) // SAMPLE)]
    if len(some) == 1:
        return read(some[0])
    return Signals(*map(statistics.median, zip(*map(read, some), strict=True)))


def blend(before: Signals | None, now: Signals, steps: int) -> Signals:
    """A mean over the latest steps, the newer the heavier."""
    if before is None:
        return now
    kept = FORGETS**steps
    mean = Signals(*(kept * b + (1 - kept) * n for b, n in zip(before, now, strict=True)))
    # What was not known yet is no zero.
    return mean if before.cpu > 0 else mean._replace(cpu=now.cpu)


def strongest(peers: Signals | None, mates: Signals | None) -> Signals | None:
    """Of two groups of healthy ranks the louder signal each, the slower clock: who is well in spite
    of a signal shows that it slows nobody."""
    if peers is None or mates is None:
        return peers or mates
    louder = Signals(*map(max, peers, mates))
    known = [clock for clock in (peers.clock, mates.clock) if clock > 0]
    times = {name: peers.part(name) for name in PARTS}
    return louder._replace(clock=min(known, default=0.0), total=peers.total, **times)
