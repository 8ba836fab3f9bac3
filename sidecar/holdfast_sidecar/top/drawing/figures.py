"""Figures in the few columns that a table has for them."""

from __future__ import annotations

UNKNOWN = "-"

_SECONDS = ((0.9995, 1e3, "{:.0f}ms"), (9.995, 1, "{:.2f}s"), (99.95, 1, "{:.1f}s"))
_LONGER = ((599.5, 1, "s"), (7200, 60, "m"), (172800, 3600, "h"))


def short_span(seconds: float | None) -> str:
    """A length of time in five columns: `350ms`, `1.21s`, `12m`."""
    if seconds is None:
        return UNKNOWN
    seconds = max(seconds, 0.0)
    for below, factor, form in _SECONDS:
        if seconds < below:
            return form.format(seconds * factor)
    for below, unit_s, unit in _LONGER:
        if seconds < below:
            return f"{seconds / unit_s:.0f}{unit}"
    return f"{seconds / 86400:.0f}d"


def number(count: int | None) -> str:
    """`12,345`."""
    return UNKNOWN if count is None else f"{count:,}"


def amount(count: float) -> str:
    """`950`, `12.3k`, `4.5M`."""
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= factor:
            return f"{count / factor:.1f}{unit}"
    return f"{count:.0f}"


def share(part: float | None, digits: int = 0) -> str:
    """`93%`, of a share from 0 to 1."""
    return UNKNOWN if part is None else f"{part * 100:.{digits}f}%"


def counted(count: int, what: str) -> str:
    """`1 rank`, `64 ranks`."""
    return f"{count:,} {what}{'s' * (count != 1)}"
