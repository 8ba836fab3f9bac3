"""One PromQL query of a panel, and the JSON that Grafana wants of it."""

from __future__ import annotations

from dataclasses import dataclass
from string import ascii_uppercase

from builders.names import DATA_SOURCE, Json


@dataclass(frozen=True)
class Query:
    """An expression and what its series are called: text with `{{label}}`."""

    expr: str
    legend: str = ""
    is_instant: bool = False
    """Only its value now; what is gone shows as no data rather than as its last value."""
    is_table: bool = False


def over_time(expr: str, legend: str = "") -> Query:
    """A line, or several."""
    return Query(expr, legend)


def now(expr: str, legend: str = "") -> Query:
    """A value, or several."""
    return Query(expr, legend, is_instant=True)


def targets(queries: list[Query]) -> list[Json]:
    """As they stand in a panel: A, B, C in order."""
    return [target(query, letter) for query, letter in zip(queries, ascii_uppercase, strict=False)]


def target(query: Query, letter: str) -> Json:
    """One of them."""
    return {
        "datasource": DATA_SOURCE,
        "editorMode": "code",
        "exemplar": False,
        "expr": query.expr,
        "format": "table" if query.is_table else "time_series",
        "instant": query.is_instant,
        "legendFormat": query.legend,
        "range": not query.is_instant,
        "refId": letter,
    }
