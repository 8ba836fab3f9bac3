"""All figures of the detection benchmark, in the order of docs/benchmarks.md. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bench.benchmark import Sample
from bench.detection.death_figures import death_figures, everywhere_figures
from bench.detection.hang_figures import hang_figures
from bench.detection.hot_path_figures import hot_path_figures
from bench.detection.presence_figures import heartbeat_figures, node_loss_figures
from bench.detection.quiet_figures import quiet_figures
from bench.figures import Figure

FIGURES = (
    death_figures,
    everywhere_figures,
    hang_figures,
    node_loss_figures,
    hot_path_figures,
    heartbeat_figures,
    quiet_figures,
)
"""Per row: its figures, given all samples."""


def figures(samples: Sequence[Sample]) -> list[Figure]:
    """What the samples come to."""
    return [figure for of_row in FIGURES for figure in of_row(samples)]
