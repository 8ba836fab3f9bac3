"""A figure, its goal, and the table that people read. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

NOT_RUN = "not run"


@dataclass(frozen=True)
class Figure:
    """One number that was measured. `spread` is what it is the middle of, for the table."""

    name: str
    value: float | None
    unit: str
    goal: str | None = None
    met: bool | str | None = None
    """True, False, or "not run"; None when the figure has no goal."""
    spread: tuple[float, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The figure as the results file holds it."""
        return {
            "name": self.name,
            "value": None if self.value is None else round(self.value, 6),
            "unit": self.unit,
            "goal": self.goal,
            "met": self.met,
        }


def middle(name: str, unit: str, values: Sequence[float]) -> Figure:
    """The median of what was measured, without a goal."""
    if not values:
        return Figure(name, None, unit, met=NOT_RUN)
    return Figure(name, statistics.median(values), unit, spread=tuple(values))


def at_most(
    name: str, unit: str, value: float | None, limit: float, spread: Sequence[float] = ()
) -> Figure:
    """A figure that must not exceed `limit`; not run when there is no value."""
    goal = f"<= {limit:g}"
    if value is None:
        return Figure(name, None, unit, goal, NOT_RUN)
    return Figure(name, value, unit, goal, value <= limit, tuple(spread))


def at_least(
    name: str, unit: str, value: float | None, limit: float, spread: Sequence[float] = ()
) -> Figure:
    """A figure that must reach `limit`; not run when there is no value."""
    goal = f">= {limit:g}"
    if value is None:
        return Figure(name, None, unit, goal, NOT_RUN)
    return Figure(name, value, unit, goal, value >= limit, tuple(spread))


def exactly(name: str, unit: str, value: float | None, wanted: float) -> Figure:
    """A figure that must be just this; not run when there is no value."""
    goal = f"= {wanted:g}"
    if value is None:
        return Figure(name, None, unit, goal, NOT_RUN)
    return Figure(name, value, unit, goal, value == wanted)


def ratio(above: Sequence[float], below: Sequence[float]) -> float | None:
    """Ratio of the medians; None when either was not measured."""
    if not above or not below:
        return None
    return statistics.median(above) / statistics.median(below)


def missed(figures: Iterable[Figure]) -> bool:
    """Whether any goal was missed. What was not run is neither met nor missed."""
    return any(figure.met is False for figure in figures)


def table(figures: Iterable[Figure]) -> str:
    """The figures as aligned columns: min, median, max, how many, goal, verdict."""
    head = ("figure", "min", "median", "max", "n", "unit", "goal", "met")
    rows = [head, *(_cells(figure) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return "\n".join(_line(row, widths) for row in rows)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    numbers = range(1, 5)
    padded = (
        cell.rjust(width) if column in numbers else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join(padded).rstrip()


def _cells(figure: Figure) -> tuple[str, ...]:
    low, high = (
        (_number(min(figure.spread)), _number(max(figure.spread))) if figure.spread else ("", "")
    )
    return (
        figure.name,
        low,
        _value(figure),
        high,
        str(len(figure.spread)) if figure.spread else "",
        figure.unit,
        figure.goal or "",
        _verdict(figure.met),
    )


def _verdict(met: bool | str | None) -> str:
    if met is None:
        return ""
    if isinstance(met, str):
        return met
    return "met" if met else "MISSED"


def _value(figure: Figure) -> str:
    if figure.value is None:
        return NOT_RUN if figure.met == NOT_RUN else "none"
    return _number(figure.value)


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"
