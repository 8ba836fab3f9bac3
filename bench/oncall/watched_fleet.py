"""A made-up job, scraped by a real Prometheus that has the shipped rules, and a day of it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from testing.alerting import PROMETHEUS

from bench.oncall.fleet import Fleet, serving
from bench.oncall.monitors import Prometheus, Series, found, prometheus
from bench.oncall.names import SCRAPE_JOB
from bench.oncall.shipped import write_prometheus
from bench.oncall.yesterday import write_blocks

FOUND_LIMIT_S = 120.0


@contextmanager
def watched(ranks: int) -> Iterator[tuple[Prometheus, Fleet]]:
    """From the moment on at which every node was scraped."""
    found(PROMETHEUS)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as made, serving(ranks) as fleet:
        folder = Path(made)
        write_prometheus(folder, [fleet.leader])
        write_blocks(folder, fleet.addresses, int(time.time()))
        with prometheus(folder) as server:
            nodes = float(len(fleet.addresses))

            def are_all_up(told: list[Series]) -> bool:
                return [value for _, value in told] == [nodes]

            server.wait_for(f'sum(up{{job="{SCRAPE_JOB}"}})', are_all_up, FOUND_LIMIT_S)
            yield server, fleet
