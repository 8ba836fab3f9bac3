"""How long the shipped rules take to evaluate, against how often they are, at 1,024 ranks."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from bench.benchmark import Sample
from bench.oncall.monitors import Group, Prometheus
from bench.oncall.watched import watched

LOOK_S = 5.0
"""A third of the shortest interval: no evaluation is missed."""
WATCHED_S = 900.0
"""As far as most rules look back; what others look back on for longer `yesterday` writes."""
QUICK_WATCHED_S = 60.0
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


def measure(ranks: int, watched_s: float) -> list[Sample]:
    """One sample for each group, and one for the server."""
    with watched(ranks) as (server, fleet):
        began_s, spent_s = time.monotonic(), server.cpu_s()
        seen: dict[str, Evaluations] = {}
        while time.monotonic() < began_s + watched_s:
            time.sleep(LOOK_S)
            for group in server.groups():
                seen.setdefault(group.name, Evaluations(group.interval_s)).note(group)
        elapsed_s = time.monotonic() - began_s
        whole = {
            "ranks": ranks,
            "nodes": len(fleet.addresses),
            "series": _value(server, "sum(scrape_samples_scraped)"),
            "scrape_s": _value(server, "max(scrape_duration_seconds)"),
            "firing": _value(server, 'count(ALERTS{alertstate="firing"})'),
            "resident_mib": server.resident_bytes() / 2**20,
            "core_percent": 100 * (server.cpu_s() - spent_s) / elapsed_s,
            "watched_s": elapsed_s,
        }
    return [whole, *(_sample(name, one, ranks) for name, one in seen.items())]


def _sample(name: str, seen: Evaluations, ranks: int) -> Sample:
    return {
        "ranks": ranks,
        "group": name,
        "interval_s": seen.interval_s,
        "took_s": list(seen.took_s.values()),
        "failed": seen.failed,
    }


def _value(server: Prometheus, expression: str) -> float:
    """0 where there is nothing to count."""
    return sum(value for _, value in server.now(expression))
