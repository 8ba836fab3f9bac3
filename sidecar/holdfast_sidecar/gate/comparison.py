"""A node's figures beside the median of the other nodes that were tested. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import median

from holdfast_sidecar.gate.errand import CPU
from holdfast_sidecar.records.reports import Exertion

SLOW_RATIO = 0.8
"""Healthy GPUs of one model lie within a few percent of each other, so a fifth is told."""

UNFIT_RATIO = 0.5
"""Half the others' speed halves the job's, for every step waits for the slowest: a node like that
is better left out. Peers' launchers draw the line there too (twice the median time)."""


@dataclass(frozen=True)
class Compared:
    """One figure. `median`: of the others; None: nobody else has one."""

    name: str
    value: float
    median: float | None

    @property
    def ratio(self) -> float | None:
        """This node's share of the median."""
        return self.value / self.median if self.median else None


def compare(own: Exertion, others: Iterable[Exertion]) -> list[Compared]:
    """Every figure that this node has, beside those of nodes like it."""
    alike = [one for one in others if one.state == "done" and _kind(one) == _kind(own)]
    return [
        Compared(name, value, _median(one.figures[name] for one in alike if name in one.figures))
        for name, value in sorted(own.figures.items())
    ]


def far_behind(own: Exertion, others: Iterable[Exertion]) -> Iterator[str]:
    """What makes this node unfit beside the others. CPUs are shared with whatever else runs, so
    their figures are only told."""
    if own.device in ("", CPU):
        return
    for one in compare(own, others):
        if one.ratio is not None and one.ratio < UNFIT_RATIO:
            yield f"{words(one.name)}: {one.ratio:.0%} of the median of the other nodes"


def words(name: str) -> str:
    """`matmul`, `memory`, `all reduce`."""
    return name.removesuffix("_per_s").rpartition("_")[0].replace("_", " ")


def _kind(one: Exertion) -> tuple[str, int]:
    return one.device, one.devices


def _median(values: Iterable[float]) -> float | None:
    known = list(values)
    return median(known) if known else None
