"""One metric: name, kind, unit, labels, help; and short ways to write one down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

JOB = ("run",)
NODE = ("run", "node")
RANK = ("run", "node", "rank")
GPU = ("run", "node", "gpu")
NIC = ("run", "node", "device")
PORT = ("run", "node", "device", "port")


@dataclass(frozen=True)
class Entry:
    """One metric. `unit` is "" for plain counts and states; a counter's name ends in _total."""

    name: str
    kind: Literal["gauge", "counter", "summary"]
    unit: str
    labels: tuple[str, ...]
    help: str
    leader_only: bool = False
    """Told by the leader alone, about the whole job."""


def gauge(name: str, unit: str, labels: tuple[str, ...], text: str) -> Entry:
    """A gauge; its name without the prefix."""
    return Entry(f"holdfast_{name}", "gauge", unit, labels, text)


def counter(name: str, unit: str, labels: tuple[str, ...], text: str) -> Entry:
    """A counter; its name without the prefix, with `_total`."""
    return Entry(f"holdfast_{name}", "counter", unit, labels, text)


def summary(name: str, unit: str, labels: tuple[str, ...], text: str) -> Entry:
    """A count and a sum; its name without the prefix."""
    return Entry(f"holdfast_{name}", "summary", unit, labels, text)


def of_job(entry: Entry) -> Entry:
    """The same, told by the leader alone."""
    return Entry(entry.name, entry.kind, entry.unit, entry.labels, entry.help, leader_only=True)
