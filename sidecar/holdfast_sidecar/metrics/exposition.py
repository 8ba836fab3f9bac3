"""Samples as a page: in Prometheus' text format, or in OpenMetrics for who asks for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from holdfast_sidecar.metrics.catalogue import CATALOGUE
from holdfast_sidecar.records.metric import Entry, Sample

OF_THE_TARGET = ("instance", "node")
"""What the scrape of a sidecar is known by, and who tells about the whole job must not be: whoever
leads tells the same series. An empty label is no label; with `honor_labels: true` it also keeps
Prometheus from attaching that of the target."""


def expose(samples: Iterable[Sample], accept: str = "") -> tuple[bytes, str]:
    """The page for this Accept header, and what it is."""
    encode, content_type = choose_encoder(accept)
    return encode(_Page(samples)), content_type


class _Page(Collector):
    """Groups samples into families in the catalogue's order; an unknown name is a KeyError."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._by_name: dict[str, list[Sample]] = {entry.name: [] for entry in CATALOGUE}
        for sample in samples:
            self._by_name[sample.name].append(sample)

    def collect(self) -> Iterator[Metric]:
        """Every family of the catalogue that has samples."""
        for entry in CATALOGUE:
            if self._by_name[entry.name]:
                yield family(entry, self._by_name[entry.name])


def family(entry: Entry, samples: Iterable[Sample]) -> Metric:
    """Samples of one entry as prometheus_client's family. Labels must be the catalogue's."""
    names = told_labels(entry)
    made = _empty(entry, names)
    for sample in samples:
        values = [*(sample.labels[label] for label in entry.labels)]
        values += [""] * (len(names) - len(values))
        if isinstance(made, SummaryMetricFamily):
            made.add_metric(values, sample.count or 0, sample.value)
        else:
            made.add_metric(values, sample.value)
    return made


def told_labels(entry: Entry) -> tuple[str, ...]:
    """The entry's labels, then those that are told empty."""
    if not entry.leader_only:
        return entry.labels
    return (*entry.labels, *(label for label in OF_THE_TARGET if label not in entry.labels))


def _empty(
    entry: Entry, labels: tuple[str, ...]
) -> SummaryMetricFamily | CounterMetricFamily | GaugeMetricFamily:
    # prometheus_client would append a unit to a name that does not end with it.
    base = entry.name.removesuffix("_total")
    unit = entry.unit if entry.unit and base.endswith(f"_{entry.unit}") else ""
    if entry.kind == "summary":
        return SummaryMetricFamily(entry.name, entry.help, labels=labels, unit=unit)
    if entry.kind == "counter":
        return CounterMetricFamily(entry.name, entry.help, labels=labels, unit=unit)
    return GaugeMetricFamily(entry.name, entry.help, labels=labels, unit=unit)
