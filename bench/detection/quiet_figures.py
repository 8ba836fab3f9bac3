"""The figures of healthy jobs: not one false alarm. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bench.benchmark import Sample
from bench.detection.hang_names import QUIET, REAL, SIMULATED
from bench.figures import Figure, exactly, middle


def quiet_figures(samples: Sequence[Sample]) -> list[Figure]:
    """False alarms of a real job and of simulated ones, and how long they were watched."""
    return [*_figures(samples, REAL, "healthy job"), *_figures(samples, SIMULATED, "simulated job")]


def _figures(samples: Sequence[Sample], job: str, name: str) -> list[Figure]:
    own = [s for s in samples if s["row"] == QUIET and s.get("job") == job]
    alarms = sum(len(s["alarms"]) for s in own) if own else None
    found = [exactly(f"{name}: false alarms", "times", alarms, 0)]
    if job == REAL:
        found.append(middle(f"{name}: watched", "s", [s["seconds"] for s in own]))
        found.append(
            middle(f"{name}: things that look like a hang", "", [s["habits"] for s in own])
        )
    total = [float(sum(s["steps"] for s in own))] if own else []
    return [*found, middle(f"{name}: steps", "", total)]
