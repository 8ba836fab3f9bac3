"""For how long nodes have been slow without a break, as one leader saw it with its own clock.

A new leader begins anew, and so does one that was stopped for a while: nobody is replaced for what
was not seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast_sidecar.records.slowness import Cause, SlowStanding

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
    """A node's slowness, seconds of the leader's clock; `newest_s`: judged last."""

    since_s: float
    newest_s: float
    judgements: int

    @property
    def lasted_s(self) -> float:
        """From the first judgement to the newest: a standing that nobody renews grows no older."""
        return self.newest_s - self.since_s


class Endurance:
    """Follows standings of one leader's own."""

    def __init__(self) -> None:
        self._spells: dict[str, Spell] = {}
        self._led = ""
        self._asked_s = float("-inf")
        self._judged_unix_s = 0.0

    def follow(self, standing: SlowStanding | None, led: str, now_s: float) -> Mapping[str, Spell]:
        """Node -> its spell so far. `led`: whose lease, which attempt; another one begins anew."""
        if led != self._led or now_s - self._asked_s > LATE_S:
            self._spells, self._judged_unix_s = {}, 0.0
        self._led, self._asked_s = led, now_s
        if standing is None:
            self._spells = {}
        elif standing.at_unix_s != self._judged_unix_s:
            self._judged_unix_s = standing.at_unix_s
            slow = {one.node for one in standing.slow if one.node and one.cause in CARRIED}
            self._spells = {node: self._again(node, now_s) for node in sorted(slow)}
        return dict(self._spells)

    def _again(self, node: str, now_s: float) -> Spell:
        known = self._spells.get(node)
        if known is None:
            return Spell(now_s, now_s, 1)
        return Spell(known.since_s, now_s, known.judgements + 1)
