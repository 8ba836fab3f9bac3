"""What slowness cost, as tables for people and as data for scripts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast_sidecar.cli.performance_recall import Recalled
from holdfast_sidecar.cli.table import table
from holdfast_sidecar.config.settings import CostSettings
from holdfast_sidecar.performance.summary import losses_of
from holdfast_sidecar.records.formatting import gpu_hours, hours_of, money, percent, span
from holdfast_sidecar.records.reports import Losses, Performance

CAUSES_SHOWN = 12


def loss_tables(recalled: Recalled, performance: Performance, price: CostSettings) -> str:
    """By cause and by rank: of this run, and of those before it."""
    now, before = losses_of(performance), recalled.before
    parts = [
        _table(head, lost, watched_s, performance, price)
        for head, lost, watched_s in (
            ("lost to", now.by_cause, now.watched_s),
            ("lost by", now.by_rank, now.watched_s),
            ("in runs before, to", before.by_cause, before.watched_s),
        )
    ]
    told = "\n\n".join(filter(None, parts))
    return told or ("nothing was lost to slowness so far" if now.watched_s else "")


def plain_losses(lost: Losses, ranks: int, price: CostSettings) -> dict[str, Any]:
    """The same for scripts, of one run or several."""
    total_s = sum(lost.by_cause.values())
    return {
        "watched_s": lost.watched_s,
        "total_s": total_s,
        "gpu_hours": gpu_hours(total_s, ranks),
        "money": money(total_s, ranks, price),
        "by_cause_s": lost.by_cause,
        "by_rank_s": lost.by_rank,
    }


def _table(
    head: str,
    lost: Mapping[str, float],
    watched_s: float,
    performance: Performance,
    price: CostSettings,
) -> str:
    dearest, ranks = sorted(lost.items(), key=lambda one: -one[1]), performance.world_size
    rows = [
        [
            f"rank {name}" if name[:1].isdigit() else name,
            span(seconds),
            percent(seconds / watched_s) if watched_s else "-",
            f"{gpu_hours(seconds, ranks):,.2f}",
            *([] if (paid := money(seconds, ranks, price)) is None else [f"{paid:,.2f}"]),
        ]
        for name, seconds in dearest[:CAUSES_SHOWN]
        if seconds > 0
    ]
    if not rows:
        return ""
    headings = [head, "time", "of the steps", hours_of(performance, price)]
    return table(headings + [price.currency] * (price.per_gpu_hour > 0), rows)
