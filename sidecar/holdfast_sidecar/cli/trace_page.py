"""A trace of several ranks as a page for people and as data for scripts. Pure, except for the time
of telling."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict

from holdfast_sidecar.cli.table import size, table
from holdfast_sidecar.cli.trace_files import Collected
from holdfast_sidecar.performance import traces
from holdfast_sidecar.performance.traces import Row
from holdfast_sidecar.policy.tracing import why_no_trace
from holdfast_sidecar.records.checkpoint import TracedRank, TraceOrder


def page(job: str, order: TraceOrder, collected: Sequence[Collected]) -> str:
    """For people."""
    compared = in_order(order)
    steps = (
        f"{order.steps} steps from step {order.step}" if order.steps > 1 else (f"step {order.step}")
    )
    lines = [f"job {job}, {steps}: {order.why}", ""]
    columns = [f"rank {one.rank}" for one in compared]
    for title, rows in (
        ("part of the step, ms", traces.parts(compared)),
        ("operator, ms of its own", traces.operators(compared)),
    ):
        if rows:
            more = ["difference"] if len(compared) > 1 else []
            lines += [table([title, *columns, *more], [_cells(row) for row in rows]), ""]
    if len(compared) > 1 and (told := traces.verdict(compared)):
        lines += [told, ""]
    lines += [_where(one) for one in collected]
    lines += ["", "open them in https://ui.perfetto.dev or chrome://tracing"]
    return "\n".join(lines)


def in_order(order: TraceOrder) -> list[TracedRank]:
    """The ranks that are set side by side and have something to show, the slow one first."""
    by_rank = {one.rank: one for one in order.taken if one.state == "saved"}
    return [by_rank[rank] for rank in order.compared if rank in by_rank]


def _cells(row: Row) -> list[str]:
    cells = ["-" if us is None else f"{us / 1e3:.2f}" for us in row.us]
    if len(row.us) > 1:
        cells.append(f"{round(row.difference_us / 1e3, 2) + 0.0:+.2f}")
    return [row.name, *cells]


def _where(one: Collected) -> str:
    rank = one.rank
    if not rank.path:
        return f"rank {rank.rank}: no trace: {why_no_trace(rank)}"
    note = f"; {rank.error}" if rank.error else ""
    kept = f"{size(rank.size_bytes)}, its loop stood for {rank.kept_s * 1e3:.0f} ms{note}"
    if one.path:
        trouble = f"; {one.trouble}" * bool(one.trouble)
        return f"rank {rank.rank}: {one.path} ({kept}){trouble}"
    return f"rank {rank.rank}: {rank.host}:{rank.path} (on another node; {kept})"


def spell(order: TraceOrder, collected: Sequence[Collected]) -> str:
    """For scripts."""
    compared = in_order(order)
    return json.dumps(
        {
            "step": order.step,
            "steps": order.steps,
            "attempt": order.attempt,
            "why": order.why,
            "compared": [one.rank for one in compared],
            "parts_us": {row.name: list(row.us) for row in traces.parts(compared)},
            "operators_us": {row.name: list(row.us) for row in traces.operators(compared)},
            "ranks": [
                {**asdict(one.rank), "collected": one.path, "trouble": one.trouble}
                for one in collected
            ],
            "at_unix_s": time.time(),
        },
        indent=2,
    )
