"""For how long nodes have been slow without a break, as one leader saw it, and what that cost.

A new leader begins anew, and so does one that was stopped for a while: nobody is replaced for what
was not seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast_sidecar.records.steps import Cause, SlowStanding

CARRIED = frozenset(
    {
        Cause.GPU_CLOCK,
        Cause.GPU_POWER,
        Cause.GPU_LINK,
        Cause.GPU_SHARED,
        Cause.COMPUTE,
        Cause.CPU_CONTENTION,
        Cause.MEMORY_PRESSURE,
        Cause.LINK,
    }
)
"""What stays behind with a node. Not among them: what the job brings along wherever it runs (uneven
work, stages, the collector, compiling, its loader), a quota that the user set, storage that the
nodes share, and what nobody can explain."""

LATE_S = 10.0
"""A leader looks three times a second; one that did not for so long was stopped, or another led."""


@dataclass(frozen=True)
class Spell:
    """A node's slowness, as far as it was judged."""

    lasted_s: float = 0.0
    """Of the steps in which it was slow, from end to end: what the job did between them, an
    evaluation or a pause of an hour, is no slowness, and a standing that nobody renews grows no
    older."""
    lost_s: float = 0.0
    """What the job lost by it meanwhile."""
    judgements: int = 0

    @property
    def gain(self) -> float:
        """So much faster the job would have been without it, over all of it."""
        rest_s = self.lasted_s - self.lost_s
        return self.lost_s / rest_s if rest_s > 0 else 0.0

    def longer(self, seen_s: float, gain: float) -> Spell:
        """One judgement later. Faster by `gain` is shorter by gain / (1 + gain)."""
        lost_s = seen_s * gain / (1 + gain)
        return Spell(self.lasted_s + seen_s, self.lost_s + lost_s, self.judgements + 1)


class Endurance:
    """Follows standings of one leader's own."""

    def __init__(self) -> None:
        self._spells: dict[str, Spell] = {}
        self._led = ""
        self._asked_s = float("-inf")
        self._judged_unix_s = 0.0
        self._watched_s = 0.0

    def follow(self, standing: SlowStanding | None, led: str, now_s: float) -> Mapping[str, Spell]:
        """Node -> its spell so far. `led`: whose lease, which attempt; another one begins anew."""
        if led != self._led or now_s - self._asked_s > LATE_S:
            self._spells, self._judged_unix_s = {}, 0.0
        self._led, self._asked_s = led, now_s
        if standing is None:
            self._spells = {}
        elif standing.at_unix_s != self._judged_unix_s:
            self._judged_unix_s = standing.at_unix_s
            seen_s = max(0.0, standing.watched_s - self._watched_s)
            self._watched_s = standing.watched_s
            self._spells = self._longer(_gains(standing), seen_s)
        return dict(self._spells)

    def _longer(self, gains: Mapping[str, float], seen_s: float) -> dict[str, Spell]:
        """Before the first judgement it was not watched."""
        known = self._spells
        return {
            node: known[node].longer(seen_s, gain) if node in known else Spell(judgements=1)
            for node, gain in gains.items()
        }


def _gains(standing: SlowStanding) -> dict[str, float]:
    """Slow node -> what the job would gain without the worst of what stays with it."""
    gains: dict[str, float] = {}
    for one in standing.slow:
        if one.node and one.cause in CARRIED:
            gains[one.node] = max(one.gain, gains.get(one.node, 0.0))
    return gains
