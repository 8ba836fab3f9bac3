"""What `holdfast trace` costs the rank that is traced: its steps with and without, in turn.

Nothing of it is paid unless somebody asks, so it has no goal; it is stated.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Sequence

from bench.benchmark import Sample, Task
from bench.figures import NOT_RUN, Figure, middle
from bench.interval import median_interval
from bench.launch.child import run_child
from bench.launch.hooks_paired import rank_environment
from bench.stragglers.section import Section

TRACE_PRICE = "trace-price"
PAIRS = 30
PAIRS_QUICK = 10
STEPS = 11
"""Traced in a row; the last one is left out, as the trace is ended in it."""
LIMIT_S = 120.0


def tasks(quick: bool) -> list[Task]:
    """One process does it all."""
    pairs = PAIRS_QUICK if quick else PAIRS
    return [Task(TRACE_PRICE, TRACE_PRICE, lambda: measure(pairs))]


def measure(pairs: int = PAIRS) -> list[Sample]:
    """A sample per pair of blocks."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir="/dev/shm") as pages:
        command = [sys.executable, "-m", "bench.stragglers.traced_step", str(pairs), str(STEPS)]
        told: list[Sample] = json.loads(run_child(command, LIMIT_S, rank_environment(pages)))
    return [{"pair": number, **one} for number, one in enumerate(told)]


def figures(samples: Sequence[Sample]) -> list[Figure]:
    """By how much a traced step is longer, how long the loop stands, how large the file is."""
    told = [one for one in samples if one.get("row") == TRACE_PRICE and "not_run" not in one]
    if not told:
        return [Figure("a step that is traced", None, "%", met=NOT_RUN)]
    percents = [
        100 * (statistics.median(one["traced_ns"]) / statistics.median(one["plain_ns"]) - 1)
        for one in told
    ]
    steps = len(told[0]["traced_ns"]) + 1
    interval = median_interval(percents)
    span = f"{interval.lower:.1f} to {interval.upper:.1f}"
    return [
        middle(f"a step is longer while it is traced (95 %: {span})", "%", percents),
        middle("the loop stands for the first trace", "ms", [told[0]["stood_ns"] / 1e6]),
        middle("and for later ones", "ms", [one["stood_ns"] / 1e6 for one in told[1:]]),
        middle("until its file is there", "ms", [one["file_ns"] / 1e6 for one in told]),
        middle("its file, a step", "KiB", [one["bytes"] / steps / 1024 for one in told]),
    ]


SECTION = Section(rows=(TRACE_PRICE,), tasks=tasks, figures=figures)

if __name__ == "__main__":
    for figure in figures([{"row": TRACE_PRICE, **one} for one in measure()]):
        print(figure.as_json())
