"""All figures of the checkpoint benchmark, in the order of docs/benchmarks.md. Pure.

Comparisons are ratios of medians within one run; what is counted must be exact.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bench.benchmark import Sample
from bench.checkpoint.names import (
    ASYNC,
    BLOCKED,
    COMPUTING,
    COPY,
    DCP_PROCESS,
    DCP_SYNC,
    DCP_THREAD_CACHED,
    HOLDFAST,
    IN_FLIGHT,
    LOAD,
    LOST_NODE,
    LOST_RANK,
    SAVERS,
    SLEEPING,
    SYNC,
)
from bench.figures import Figure, at_most, exactly, middle, ratio

MILLISECONDS = 1e3


def figures(samples: Sequence[Sample]) -> list[Figure]:
    """What the samples come to."""
    return [
        *blocked_figures(samples),
        *in_flight_figures(samples, SLEEPING, 1.05),
        *in_flight_figures(samples, COMPUTING, 1.15),
        half_of_process_mode(samples),
        *load_figures(samples),
        *lost_figures(samples),
    ]


def blocked_figures(samples: Sequence[Sample]) -> list[Figure]:
    """The loop is kept by one save: later ones against the floor and the best peer, the first."""
    own = blocked(samples, HOLDFAST)
    floor, peer = blocked(samples, COPY), blocked(samples, DCP_THREAD_CACHED)
    first = blocked(samples, HOLDFAST, is_first=True)
    found = [
        at_most("blocked: Holdfast / plain copy", "ratio", ratio(own, floor), 1.3),
        at_most(f"blocked: Holdfast / {DCP_THREAD_CACHED}", "ratio", ratio(own, peer), 1.0),
        at_most("blocked: first Holdfast snapshot / later ones", "ratio", ratio(first, own), 2.0),
    ]
    for name in (HOLDFAST, *SAVERS):
        found.append(_milliseconds(f"blocked: {name}", blocked(samples, name)))
    for name in (HOLDFAST, *SAVERS):
        firsts = blocked(samples, name, is_first=True)
        found.append(_milliseconds(f"blocked: {name}, first time", firsts))
    waiting = [s["without_slots_s"] for s in samples if "without_slots_s" in s]
    found.append(_milliseconds("boundary while the sidecar allocates", waiting))
    return found


def in_flight_figures(samples: Sequence[Sample], kind: str, limit: float) -> list[Figure]:
    """Steps of a kind, beside each way's write."""
    own = slowdowns(samples, kind, HOLDFAST)
    title = f"{kind} steps, write in flight / none"
    found = [at_most(f"{title}: {HOLDFAST}", "ratio", _median(own), limit, own)]
    for name in (DCP_PROCESS, DCP_THREAD_CACHED):
        found.append(middle(f"{title}: {name}", "ratio", slowdowns(samples, kind, name)))
    for name in (HOLDFAST, DCP_PROCESS, DCP_THREAD_CACHED):
        took = [s["write_s"] for s in _of(samples, IN_FLIGHT, name) if s["kind"] == kind]
        found.append(middle(f"{kind} steps, the write lasts: {name}", "s", took))
    return found


def half_of_process_mode(samples: Sequence[Sample]) -> Figure:
    """What is added to a step that computes, against what DCP's process mode adds."""
    own = _median(slowdowns(samples, COMPUTING, HOLDFAST))
    peer = _median(slowdowns(samples, COMPUTING, DCP_PROCESS))
    name = f"{COMPUTING} steps, slowdown: {HOLDFAST} / {DCP_PROCESS}"
    if own is None or peer is None:
        return at_most(name, "ratio", None, 0.5)
    # Where the peer slows nothing down, half of it is nothing; below 0 there is only noise.
    return at_most(name, "ratio", max(own - 1, 0.0) / max(peer - 1, 1e-3), 0.5)


def load_figures(samples: Sequence[Sample]) -> list[Figure]:
    """The same state again after a rank's death."""
    own = [s["load_s"] for s in _of(samples, LOAD, HOLDFAST)]
    disk = [s["load_s"] for s in _of(samples, LOAD, DCP_SYNC) if s["is_cold"]]
    cached = [s["load_s"] for s in _of(samples, LOAD, DCP_SYNC) if not s["is_cold"]]
    return [
        at_most("load: snapshot / DCP from disk", "ratio", ratio(own, disk), 0.2),
        middle("load: snapshot / DCP from the page cache", "ratio", _single(ratio(own, cached))),
        _milliseconds("load: snapshot", own),
        _milliseconds("load: DCP from disk", disk),
        _milliseconds("load: DCP from the page cache", cached),
    ]


def lost_figures(samples: Sequence[Sample]) -> list[Figure]:
    """Completed steps that were done again."""
    ranks = [float(s["lost_steps"]) for s in _of(samples, LOST_RANK, HOLDFAST)]
    nodes = _of(samples, LOST_NODE, HOLDFAST)
    lagging = [s for s in nodes if s["peer"] == ASYNC]
    behind = [float(s["resumed"] < s["copied_step"]) for s in lagging]
    sync = [float(s["lost_steps"]) for s in nodes if s["peer"] == SYNC]
    lost = [float(s["lost_steps"]) for s in lagging]
    name = "lost node, peer copies in passing: more lost than was exported"
    return [
        exactly("SIGKILL of a rank, every=1: lost steps, worst", "steps", _worst(ranks), 0),
        middle("SIGKILL of a rank, every=1: lost steps", "steps", ranks),
        exactly(name, "times", sum(behind) if behind else None, 0),
        middle("lost node, peer copies in passing: lost steps", "steps", lost),
        exactly("lost node, peer copies in step: lost steps, worst", "steps", _worst(sync), 0),
    ]


def blocked(samples: Sequence[Sample], name: str, *, is_first: bool = False) -> list[float]:
    """Seconds that saves of this name kept the loop; the first of each rank, or all others."""
    found = _of(samples, BLOCKED, name)
    return [s["blocked_s"] for s in found if s.get("is_first") is is_first and "blocked_s" in s]


def slowdowns(samples: Sequence[Sample], kind: str, name: str) -> list[float]:
    """Per write: the middle step beside it against the middle one just before."""
    return [
        statistics.median(s["busy_s"]) / statistics.median(s["idle_s"])
        for s in _of(samples, IN_FLIGHT, name)
        if s["kind"] == kind and s["busy_s"]
    ]


def _of(samples: Sequence[Sample], row: str, name: str) -> list[Sample]:
    return [s for s in samples if s["row"] == row and s.get("contestant") == name]


def _milliseconds(name: str, seconds: Sequence[float]) -> Figure:
    return middle(name, "ms", [each * MILLISECONDS for each in seconds])


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _worst(values: Sequence[float]) -> float | None:
    return max(values, default=None)


def _single(value: float | None) -> list[float]:
    return [] if value is None else [value]
