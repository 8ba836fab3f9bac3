"""All figures of the launch benchmark, in the order of docs/benchmarks.md. Pure.

Every comparison is a ratio of medians within one run: seconds on another machine say little.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.benchmark import Sample
from bench.figures import Figure
from bench.launch import cost_figures, fault_figures


def figures(samples: Sequence[Sample]) -> list[Figure]:
    """What the samples come to."""
    return [
        *fault_figures.kill_figures(samples),
        *fault_figures.stop_figures(samples),
        *fault_figures.node_figures(samples, "node-replaced", 0.3),
        *fault_figures.node_figures(samples, "node-shrunk", 0.15),
        *cost_figures.rendezvous_figures(samples),
        *cost_figures.hooks_figures(samples),
        *cost_figures.sidecar_figures(samples),
        *cost_figures.per_step_figures(samples),
    ]
