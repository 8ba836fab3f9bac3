"""How long the shipped rules take to evaluate, against how often they are."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from bench.benchmark import Sample
from bench.oncall.monitors import Group, Prometheus

LOOK_S = 5.0
"""A third of the shortest interval: no evaluation is missed."""
NEVER = "0001-"
"""How the time of an evaluation begins that has not been."""


@dataclass
class Evaluations:
    """Every evaluation of one group, by when it ended."""

    interval_s: float
    took_s: dict[str, float] = field(default_factory=dict)
    failed: int = 0

    def note(self, group: Group) -> None:
        """The newest; the same one again is no other."""
        if not group.evaluated_at.startswith(NEVER):
            self.took_s[group.evaluated_at] = group.took_s
            self.failed = max(self.failed, group.failed)


def evaluations(server: Prometheus, ranks: int, watched_s: float) -> list[Sample]:
    """All of so many seconds, one sample for each group."""
    end_s = time.monotonic() + watched_s
    seen: dict[str, Evaluations] = {}
    while time.monotonic() < end_s:
        time.sleep(LOOK_S)
        for group in server.groups():
            seen.setdefault(group.name, Evaluations(group.interval_s)).note(group)
    return [_sample(name, one, ranks) for name, one in seen.items()]


def _sample(name: str, seen: Evaluations, ranks: int) -> Sample:
    return {
        "ranks": ranks,
        "group": name,
        "interval_s": seen.interval_s,
        "took_s": list(seen.took_s.values()),
        "failed": seen.failed,
    }
