"""Serves a page's series as constants, by prometheus_client alone: `constants.py PAGE`.

Prints the port that it listens on.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics
from prometheus_client.exposition import start_http_server
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

LIVES_S = 600.0


def furnish(page: str, registry: CollectorRegistry) -> None:
    """A metric with a child for every series."""
    for family in text_string_to_metric_families(page):
        for name, samples in _by_name(family):
            labels = sorted(samples[0].labels)
            kind = Counter if family.type == "counter" else Gauge
            metric = kind(name, family.documentation, labels, registry=registry)
            for sample in samples:
                child = metric.labels(**sample.labels) if labels else metric
                child.inc(sample.value) if isinstance(child, Counter) else child.set(sample.value)


def _by_name(family: Metric) -> Iterator[tuple[str, list[Sample]]]:
    names = dict.fromkeys(sample.name for sample in family.samples)
    for name in names:
        yield name, [sample for sample in family.samples if sample.name == name]


def main() -> None:
    """Serve for a while at most; whoever started it ends it sooner."""
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    furnish(Path(sys.argv[1]).read_text(), registry)
    server, _ = start_http_server(0, addr="127.0.0.1", registry=registry)
    print(server.server_port, flush=True)
    time.sleep(LIVES_S)


if __name__ == "__main__":
    main()
