"""What a benchmark is: named rows of tasks that yield samples, and figures judged from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.figures import Figure

Sample = dict[str, Any]
"""What one task measured. `row` and `key` are added by the run; plain JSON values only."""


class NotRun(Exception):
    """This can't be measured here; the text says why."""


@dataclass(frozen=True)
class Task:
    """One measurement, bounded in time by itself. `key` is unique within its benchmark."""

    row: str
    key: str
    measure: Callable[[], list[Sample]]


@dataclass(frozen=True)
class Benchmark:
    """A named set of rows."""

    name: str
    rows: tuple[str, ...]
    tasks: Callable[[bool], list[Task]]
    """Given whether to be quick: what to measure, the most important first."""
    figures: Callable[[Sequence[Sample]], list[Figure]]
    """Pure: what the samples come to, and whether each goal was met."""
