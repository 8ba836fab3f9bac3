"""What a Prometheus has to do that watches 1,024 ranks: scrape, evaluate rules, draw dashboards."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench.benchmark import NotRun, Sample
from bench.oncall.boards import timed
from bench.oncall.monitors import Prometheus
from bench.oncall.names import SCRAPE_JOB
from bench.oncall.rules import evaluations
from bench.oncall.watched_fleet import watched

WATCHED_S = 420.0
"""Rules that look back on a quarter of an hour find half of it: none of the dear ones does. What
others look back on for longer `yesterday` writes."""
QUICK_WATCHED_S = 40.0
"""One evaluation at least of every group."""


def measure(ranks: int, watched_s: float, boards: Sequence[str]) -> list[Sample]:
    """Its rules for so long, then these dashboards over the same time."""
    with watched(ranks) as (server, fleet):
        began_s, spent_s = time.monotonic(), server.cpu_s()
        samples = evaluations(server, ranks, watched_s)
        elapsed_s = time.monotonic() - began_s
        spent_s = server.cpu_s() - spent_s
        samples.append(
            {
                "ranks": ranks,
                "nodes": len(fleet.addresses),
                "watched_s": elapsed_s,
                "core_percent": 100 * spent_s / elapsed_s,
                **_seen(server, elapsed_s),
            }
        )
        for board in boards:
            samples += _timed(server, board, ranks, elapsed_s)
        return samples


def _timed(server: Prometheus, board: str, ranks: int, over_s: float) -> list[Sample]:
    """A query without an answer is no reason to lose what was measured of the rules."""
    try:
        return timed(server, board, ranks, over_s)
    except NotRun as reason:
        return [{"not_run": f"{board}: {reason}"}]


def _seen(server: Prometheus, elapsed_s: float) -> Sample:
    """What came of the scrapes, and how large Prometheus is after them."""
    of_all = f'{{job="{SCRAPE_JOB}"}}'
    over = f"{of_all}[{elapsed_s:.0f}s]"
    return {
        "series": _value(server, f"sum(scrape_samples_scraped{of_all})"),
        "scrape_s": _value(server, f"max(max_over_time(scrape_duration_seconds{over}))"),
        "unanswered": _value(server, f"sum(count_over_time(up{over}) - sum_over_time(up{over}))"),
        "firing": _value(server, 'count(ALERTS{alertstate="firing"})'),
        "resident_mib": server.resident_bytes() / 2**20,
    }


def _value(server: Prometheus, expression: str) -> float:
    """0 where there is nothing to count."""
    return sum(value for _, value in server.now(expression))
