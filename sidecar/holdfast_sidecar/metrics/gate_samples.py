"""What is told about the health gate."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.detectors.gate import CHECKS, Fitness
from holdfast_sidecar.records.metric import Sample, Told


def draw_gate(fitness: Fitness, told: Told) -> Iterator[Sample]:
    """The verdict, and each check behind it."""
    yield from told("node_fit", not fitness.troubles if fitness.is_known else None)
    for check in CHECKS:
        yield from told("gate_check_passed", fitness.passes(check), check=check)
