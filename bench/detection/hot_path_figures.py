"""The figures of the hot path: what the hooks take of each step. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bench.benchmark import Sample
from bench.detection.names import HOT_PATH
from bench.figures import Figure, at_most, exactly, middle

OBJECTS_AT_REST = 16
"""Counters that outgrow Python's small numbers become objects, once; what a step leaves behind
would be there a million times."""


def hot_path_figures(samples: Sequence[Sample]) -> list[Figure]:
    """All hooks of a step on a CPU, with the three lines around it."""
    found = [sample for sample in samples if sample["row"] == HOT_PATH]
    worst, dear = _told(found, "p99_us"), _told(found, "sampled_p99_us")
    usual = _told(found, "three_lines_median_us")
    passed = _told(found, "passed_over_median_us")
    waits, each = _told(found, "backward_wait_us"), _told(found, "collective_us")
    calls = _told(found, "system_calls_per_step")
    # What the others call blocks are those that were timed.
    left = [sample for sample in found if "resident_bytes" in sample]
    blocks, grown = [abs(count) for count in _told(left, "blocks")], _told(left, "resident_bytes")
    name = "hot path: fully instrumented step"
    return [
        # The middle round: what else the machine did in one of them is not the hooks' doing.
        at_most(f"{name}, p99 of 100-step means", "us", _middle(worst), 10.0, worst),
        at_most(f"{name}, all parts measured, p99 of the same", "us", _middle(dear), 20.0, dear),
        middle(f"{name}, all parts measured, median without peers", "us", usual),
        middle("hot path: step whose parts are not measured, median", "us", passed),
        middle("hot path: each backward pass that may wait for peers", "us", waits),
        middle("hot path: each collective that a script calls itself", "us", each),
        exactly("hot path: system calls per step", "calls", max(calls, default=None), 0),
        at_most(
            "hot path: objects more after all steps", "objects", _most(blocks), OBJECTS_AT_REST
        ),
        at_most("hot path: resident memory more after all steps", "bytes", _most(grown), 0),
    ]


def _told(samples: Sequence[Sample], name: str) -> list[float]:
    """Of those that tell it: samples of an earlier run, kept beside another row, may not."""
    return [sample[name] for sample in samples if name in sample]


def _middle(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _most(values: Sequence[float]) -> float | None:
    return max(values, default=None)
