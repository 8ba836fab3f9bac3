"""One value of one metric, and how to leave out what isn't known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """A value with its labels; name and labels are the catalogue's."""

    name: str
    labels: Mapping[str, str]
    value: float
    count: int | None = None
    """Of a summary: how many make up the value, which is their sum."""


@dataclass(frozen=True)
class Told:
    """Makes samples that share labels: `told("rank_step", 7)`."""

    labels: Mapping[str, str]

    def __call__(self, name: str, value: float | None, **more: str) -> Iterator[Sample]:
        """The sample, or none when the value is None: what isn't known is absent, never 0."""
        if value is not None:
            yield Sample(f"holdfast_{name}", {**self.labels, **more}, float(value))

    def summary(self, name: str, count: int, total: float, **more: str) -> Iterator[Sample]:
        """How many there were, and their sum."""
        yield Sample(f"holdfast_{name}", {**self.labels, **more}, total, count)

    def about(self, **more: str) -> Told:
        """The same with further labels."""
        return Told({**self.labels, **more})
