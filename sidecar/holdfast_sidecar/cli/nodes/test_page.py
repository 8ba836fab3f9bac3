"""A node's test as a page for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast_sidecar.cli.nodes import words
from holdfast_sidecar.cli.table import BAD, DOUBTFUL, paint
from holdfast_sidecar.components.health_check import checks
from holdfast_sidecar.components.health_check.checks import SLOW_RATIO, Compared
from holdfast_sidecar.records.formatting import span
from holdfast_sidecar.records.reports import Exertion


def exertion_lines(
    exertion: Exertion, compared: Sequence[Compared], now_unix_s: float
) -> Iterator[str]:
    """What the newest test came to."""
    if not exertion.is_over:
        yield f"test        under way: {exertion.reason}"
        return
    if exertion.state != "done":
        yield f"test        not made: {exertion.reason}"
        return
    ago = span(max(now_unix_s - exertion.ended_unix_s, 0.0))
    yield f"test        {exertion.devices} x {exertion.device}, {span(exertion.took_s)}, {ago} ago"
    for wrong in exertion.wrong:
        yield f"            {paint('wrong', BAD)}: {wrong}"
    for one in compared:
        name = checks.words(one.name)
        yield f"            {name:<11} {words.figure(one.name, one.value)}{_beside(one)}"


def _beside(one: Compared) -> str:
    if one.ratio is None:
        return " (no other node like it was tested)"
    told = f"{one.ratio:.0%} of the others' median"
    return f" ({paint(told, DOUBTFUL) + ', slow' if one.ratio < SLOW_RATIO else told})"
