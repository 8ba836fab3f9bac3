"""Rows of `bench stragglers` that belong together, so that each idea brings its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.benchmark import Sample, Task
from bench.figures import Figure


@dataclass(frozen=True)
class Section:
    """As a benchmark, without a name of its own."""

    rows: tuple[str, ...]
    tasks: Callable[[bool], list[Task]]
    figures: Callable[[Sequence[Sample]], list[Figure]]
