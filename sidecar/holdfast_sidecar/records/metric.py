"""One metric: name, kind, unit, labels, help; and short ways to write one down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

JOB = ("run",)
NODE = ("run", "node")
RANK = ("run", "node", "rank")
GPU = ("run", "node", "gpu")
NIC = ("run", "node", "device")
PORT = ("run", "node", "device", "port")


@dataclass(frozen=True)
class MetricSpec:
    """One metric. `unit` is "" for plain counts and states; a counter's name ends in _total."""

    name: str
    kind: Literal["gauge", "counter", "summary"]
    unit: str
    labels: tuple[str, ...]
    help: str
    leader_only: bool = False
    """Told by the leader alone, about the whole job."""


def gauge(name: str, unit: str, labels: tuple[str, ...], text: str) -> MetricSpec:
    """A gauge; its name without the prefix."""
    return MetricSpec(f"holdfast_{name}", "gauge", unit, labels, text)


def counter(name: str, unit: str, labels: tuple[str, ...], text: str) -> MetricSpec:
    """A counter; its name without the prefix, with `_total`."""
    return MetricSpec(f"holdfast_{name}", "counter", unit, labels, text)


def summary(name: str, unit: str, labels: tuple[str, ...], text: str) -> MetricSpec:
    """A count and a sum; its name without the prefix."""
    return MetricSpec(f"holdfast_{name}", "summary", unit, labels, text)


def of_job(entry: MetricSpec) -> MetricSpec:
    """The same, told by the leader alone."""
    return MetricSpec(
        entry.name, entry.kind, entry.unit, entry.labels, entry.help, leader_only=True
    )


# One value of one metric, and how to leave out what isn't known.


@dataclass(frozen=True)
class Sample:
    """A value with its labels; name and labels are the catalogue's."""

    name: str
    labels: Mapping[str, str]
    value: float
    count: int | None = None
    """Of a summary: how many make up the value, which is their sum."""


@dataclass(frozen=True)
class Labels:
    """Makes samples that share labels: `told("rank_step", 7)`."""

    labels: Mapping[str, str]

    def __call__(self, name: str, value: float | None, **more: str) -> Iterator[Sample]:
        """The sample, or none when the value is None: what isn't known is absent, never 0."""
        if value is not None:
            yield Sample(f"holdfast_{name}", {**self.labels, **more}, float(value))

    def summary(self, name: str, count: int, total: float, **more: str) -> Iterator[Sample]:
        """How many there were, and their sum."""
        yield Sample(f"holdfast_{name}", {**self.labels, **more}, total, count)

    def about(self, **more: str) -> Labels:
        """The same with further labels."""
        return Labels({**self.labels, **more})
