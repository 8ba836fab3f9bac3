"""A bar for each rank: what of a step it worked itself, and what it waited for the others. Pure,
except that paint looks at the terminal.

Who waits least is who the others wait for.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping

from holdfast_sidecar.cli.columns import bar_width, wrapped
from holdfast_sidecar.cli.table import BAD, paint
from holdfast_sidecar.performance.summary import SHOWN, lines_of, shortened, slow_ranks
from holdfast_sidecar.records.formatting import span
from holdfast_sidecar.records.reports import Performance
from holdfast_sidecar.records.steps import StepLine

OWN, UNCLEAR, WAIT = "█", "▒", "░"


def bars(performance: Performance) -> str:
    """The picture with its legend; empty where no rank told of its steps."""
    shown = shortened(performance)
    lines = lines_of(shown.ranks)
    if not lines:
        return ""
    nodes = {one.rank: one.node for one in shown.ranks}
    slow = slow_ranks(shown.standing)
    rows = [heading(lines.values()), *_rows(lines, nodes, slow)]
    everybody = lines_of(performance.ranks)
    if left_out := performance.left_out + len(everybody) - len(lines):
        rows.append(_others(everybody, left_out))
    return "\n".join(rows)


def heading(lines: Collection[StepLine]) -> str:
    """Of which steps it is, and what the signs mean."""
    line = next(iter(lines))
    first = line.step - line.stride + 1
    steps = f"steps {first:,} to {line.step:,}, means" if line.stride > 1 else f"step {line.step:,}"
    signs = f"{OWN} own work  {WAIT} waiting for others"
    if not all(one.waits_seen for one in lines):
        signs += f"  {UNCLEAR} backward, in which waiting can't be told apart"
    return "\n".join(wrapped("", f"{steps}: {signs}", 0))


def parts_of(line: StepLine) -> tuple[int, int, int]:
    """Own work, what may be either, and waiting, microseconds."""
    unclear = 0 if line.waits_seen else line.backward
    return line.own_us, unclear, line.communicating


def _rows(
    lines: Mapping[int, StepLine], nodes: Mapping[int, str], slow: Collection[int]
) -> list[str]:
    longest = max(sum(parts_of(line)) for line in lines.values()) or 1
    wide_rank = max(len(str(rank)) for rank in lines)
    wide_node = max(len(nodes[rank]) for rank in lines)
    names = {rank: f"rank {rank:>{wide_rank}}  {nodes[rank]:<{wide_node}}" for rank in lines}
    figures = {rank: _figures(line, rank in slow) for rank, line in lines.items()}
    taken = len("rank   " + "    ") + wide_rank + wide_node + max(map(len, figures.values()))
    width, rows = bar_width(taken), []
    for rank, line in sorted(lines.items()):
        bar = _bar(parts_of(line), longest, width)
        row = f"{names[rank]}  {bar:<{width}}  {figures[rank]}"
        rows.append(paint(row, BAD) if rank in slow else row)
    return rows


def _figures(line: StepLine, is_slow: bool) -> str:
    own, _, wait = parts_of(line)
    mark = "  <- slow" if is_slow else ""
    return f"{span(own / 1e6)} own, {span(wait / 1e6)} waiting{mark}"


def _bar(parts: tuple[int, int, int], longest: int, width: int) -> str:
    """Each sign ends where its sum does, so that rounding does not add up."""
    text, total = "", 0
    for part, sign in zip(parts, (OWN, UNCLEAR, WAIT), strict=True):
        total += part
        text += sign * (round(width * total / longest) - len(text))
    return text


def _others(everybody: Mapping[int, StepLine], left_out: int) -> str:
    own = sorted(line.own_us for line in everybody.values())
    if len(own) <= SHOWN:
        return f"and {left_out:,} more ranks"
    middle = statistics.median(own)
    among = f"{span(own[0] / 1e6)} to {span(own[-1] / 1e6)} own, in the middle {span(middle / 1e6)}"
    return f"and {left_out:,} more; of all {len(own):,}: {among}"
