"""How much of a step a pipeline needs to fill and to drain. Pure.

The slowest stage has something to do all the time but while the first micro-batch comes to it and
the last one leaves it. What it waits in the pipeline is that; what it waits for others besides
(gradients, shards) is not. Where it is the last stage, or all backward passes come after all
forward ones (GPipe), that is what the other stages take for one micro-batch. In 1F1B an early stage
waits less, as the others work while it still has something to do: filling shows in full only once
stages are even.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast_sidecar.records.steps import StepLine
from holdfast_sidecar.stragglers.census import Census
from holdfast_sidecar.stragglers.frame import Frame
from holdfast_sidecar.stragglers.place import Place

MEMBERS = 16
"""Of a stage that are looked at."""

COUNTS = 0.1
"""Of each frame: the number of micro-batches stays, the noise of a frame does not matter."""


PER_STAGE = 4
"""Micro-batches that are thought of where nobody tells: from there on filling matters little, as
the authors of GPipe (2019) put it, so that who cares for speed has as many."""


@dataclass
class Filling:
    """Follows one attempt: of the other stages' time, the part that the slowest waits."""

    share: float = 0.0
    """As it is. 0: not known, or there is no pipeline."""
    even: float = 0.0
    """As it would be if all stages took equally long."""
    _census: Census = field(default_factory=Census)
    _micro_batches: int = 0
    _measured: float = 0.0
    _is_known: bool = False
    _is_last: bool = False
    """The slowest stage is."""

    def follow(self, frame: Frame, places: Mapping[int, Place]) -> None:
        """Take one more frame."""
        if self._census.read(places):
            self._micro_batches = max((one.micro_batches for one in places.values()), default=0)
        now = self._read(frame, places) if len(self._census.by_stage) > 1 else None
        if now is not None:
            self._measured += (COUNTS if self._is_known else 1.0) * (now - self._measured)
            self._is_known = True
            self._conclude()

    def _conclude(self) -> None:
        if self._micro_batches:
            # What is waited beyond that is for messages, and stays with even stages.
            self.even = 1 / self._micro_batches
            self.share = min(self._measured, self.even)
            return
        self.share = self._measured
        fewest = 0.0 if self._is_last else 1 / (PER_STAGE * len(self._census.by_stage))
        self.even = max(self.share, fewest)

    def _read(self, frame: Frame, places: Mapping[int, Place]) -> float | None:
        own: dict[int, float] = {}
        waits: dict[int, float] = {}
        for stage, ranks in self._census.by_stage.items():
            some = ranks[:: max(1, len(ranks) // MEMBERS)]
            lines = [frame.lines[rank] for rank in some if rank in frame.lines]
            if not lines or not all(line.waits_seen for line in lines):
                return None
            own[stage] = statistics.median(line.own_us for line in lines)
            waits[stage] = statistics.median(_waits_us(ln, places[ln.rank]) for ln in lines)
        slowest = max(own, key=lambda stage: own[stage])
        self._is_last = slowest == max(own)
        others = sum(own.values()) - own[slowest]
        return min(1.0, max(0.0, waits[slowest] / others)) if others > 0 else None


def _waits_us(line: StepLine, place: Place) -> float:
    """What it has nothing to do for, and does not wait elsewhere than in the pipeline."""
    elsewhere = sum(line[waits] for waits in place.waits_elsewhere)
    return float(line.total - line.own_us - elsewhere)
