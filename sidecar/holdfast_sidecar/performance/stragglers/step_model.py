"""How long a step takes, by what each rank does itself.

Within a tensor-parallel group (and any other dimension in which ranks meet many times a step) the
slowest rank counts. A pipeline replica takes m micro-batches through its stages: the first one
passes through all of them, the others follow as quickly as the slowest stage lets them, so

    t = f * (sum of stages) + (1 - f) * (slowest stage) with f = 1 / m,

which is (m + p - 1) / m * stage where p stages are alike. How much less than 1 / m shows while they
are not is measured (see `filling`); 0 where it can't be. Data-parallel replicas meet at the
slowest. The exchange comes on top, and is what is left of the time that was measured; a model that
says more than was measured is scaled to it.
"""

from __future__ import annotations

import heapq
import statistics
from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter

from holdfast_sidecar.performance.stragglers.frame import GroupMembership, StepFrame
from holdfast_sidecar.performance.stragglers.groups import ParallelLayout
from holdfast_sidecar.performance.stragglers.peers import PackedTimes
from holdfast_sidecar.performance.stragglers.placement import PIPELINE, RankPlace
from holdfast_sidecar.records.steps import StepLine

KNOWN_SLOWEST = 16


@dataclass(frozen=True)
class StepModel:
    """One frame's times in that layout. Microseconds of a step."""

    layout: ParallelLayout
    own: Mapping[int, float]
    total_us: float
    """As it was measured."""
    filling: float = 0.0
    """Of what the other stages take, what shows in the step beside the slowest one's time."""
    even_filling: float = 0.0
    """The same if all stages took equally long."""
    _units: Sequence[float] = ()
    _replicas: Sequence[float] = ()
    _slowest: Sequence[int] = ()
    """The slowest replicas, as many as a few changes may hide."""

    def packed(self) -> StepModel:
        """The same in less room, for who keeps many of them."""
        return replace(
            self,
            own=PackedTimes(self.layout.row, self.own),
            _units=array("d", self._units),
            _replicas=array("d", self._replicas),
        )

    @property
    def modelled_us(self) -> float:
        """What own times say, without the exchange."""
        return max(self._replicas, default=0.0)

    def without(self, own: Mapping[int, float]) -> float:
        """What a step would take if these ranks took so long themselves."""
        layout = self.layout
        changed: dict[int, float] = {}
        for unit in {layout.units[rank] for rank in own if rank in layout.units}:
            times = (own.get(r, self.own.get(r, 0.0)) for r in layout.members[unit])
            changed[unit] = max(times, default=0.0)
        replicas = {layout.replica[unit] for unit in changed}
        new = {
            number: self._take(
                [self._units[u] for u in layout.parts[number]],
                [changed.get(u, self._units[u]) for u in layout.parts[number]],
            )
            for number in replicas
        }
        slowest = max(max(new.values(), default=0.0), self._slowest_but(new))
        return self.total_us - self._scale * (self.modelled_us - slowest)

    def _slowest_but(self, some: Collection[int]) -> float:
        """Of all other replicas the slowest."""
        for number in self._slowest:
            if number not in some:
                return self._replicas[number]
        rest = (one for number, one in enumerate(self._replicas) if number not in some)
        return max(rest, default=0.0)

    @property
    def _scale(self) -> float:
        modelled = self.modelled_us
        return min(1.0, self.total_us / modelled) if modelled > 0 else 0.0

    def _take(self, stages: Sequence[float], changed: Sequence[float]) -> float:
        """How long a replica takes with its stages changed: the more even they become by that, the
        more of the filling shows."""
        before = max(stages, default=0.0) * len(stages) - sum(stages)
        after = max(changed, default=0.0) * len(changed) - sum(changed)
        evened = min(1.0, max(0.0, 1.0 - after / before)) if before > 0 else 0.0
        filling = self.filling + evened * (self.even_filling - self.filling)
        return pipeline_us(changed, filling)

    def stage_times(self) -> dict[int, float]:
        """Stage -> what it takes in the middle replica; empty where there is no pipeline."""
        layout = self.layout
        if layout.stages < 2:
            return {}
        times: dict[int, list[float]] = {}
        for stage, ranks in zip(layout.stage, layout.members, strict=True):
            own = [self.own[rank] for rank in ranks if rank in self.own]
            if own:
                times.setdefault(stage, []).append(max(own))
        return {stage: statistics.median(of_it) for stage, of_it in times.items()}

    def with_stages(self, wanted: Mapping[int, float]) -> dict[int, float]:
        """rank -> its own time, if these stages took so long."""
        times = self.stage_times()
        return {
            rank: self.own[rank] * wanted[stage] / max(1.0, times[stage])
            for stage, ranks in zip(self.layout.stage, self.layout.members, strict=True)
            if stage in wanted and stage in times
            for rank in ranks
            if rank in self.own
        }


def pipeline_us(stages: Sequence[float], filling: float) -> float:
    """How long a replica takes with these times of its stages, each for all micro-batches."""
    slowest = max(stages, default=0.0)
    if len(stages) < 2:
        return slowest
    return slowest + filling * (sum(stages) - slowest)


_TOTAL = itemgetter(StepLine._fields.index("total"))


def model(
    frame: StepFrame, layout: ParallelLayout, filling: float = 0.0, even_filling: float = 0.0
) -> StepModel:
    """The model of a frame; ranks that told nothing of it count as having done nothing."""
    times = frame.own_us
    totals = sorted(map(_TOTAL, frame.lines.values()))
    total = float(totals[len(totals) // 2]) if totals else 0.0
    get = times.get
    units = [
        get(ranks[0], 0.0) if len(ranks) == 1 else max([get(rank, 0.0) for rank in ranks])
        for ranks in layout.members
    ]
    replicas = [
        units[parts[0]]
        if len(parts) == 1
        else pipeline_us([units[unit] for unit in parts], filling)
        for parts in layout.parts
    ]
    slowest = heapq.nlargest(KNOWN_SLOWEST, range(len(replicas)), key=replicas.__getitem__)
    return StepModel(layout, times, total, filling, even_filling, units, replicas, slowest)


# How much of a step the stages of a pipeline have nothing to do, by a model. Pure.
#
# Were every batch cut into endlessly many pieces, a step would last as long as the stage with most
# to do works, and what it waits for others besides: gradients, shards, parts of a tensor. What a
# step lasts longer than that is the bubble: the pipeline filling and draining, and messages between
# stages. That smaller stages stand because they have less to do is not a bubble but an uneven
# pipeline, and told as a cause.

NO_WAITS = "bubble: what the stages wait for in their backward passes is not told from their work"
NO_STAGE = "bubble: of some stages no rank told of the newest steps"


def bubble_share(
    lines: Sequence[StepLine], places: Mapping[int, RankPlace]
) -> tuple[float | None, str]:
    """Parts of one, and why it isn't known. Neither: there is no pipeline."""
    stages: dict[int, list[tuple[StepLine, RankPlace]]] = {}
    count = 1
    for line in lines:
        place = places.get(line.rank)
        if place is not None and place.stages > 1:
            count = place.stages
            stages.setdefault(place.coordinate.get(PIPELINE, 0), []).append((line, place))
    if not stages:
        return None, ""
    if not all(line.waits_seen for line in lines):
        return None, NO_WAITS
    if len(stages) < count:
        return None, NO_STAGE
    busy_us = max(_busy_us(ranks) for ranks in stages.values())
    total_us = sum(line.total for line in lines) / len(lines)
    return max(0.0, 1.0 - busy_us / total_us), ""


def _busy_us(ranks: Sequence[tuple[StepLine, RankPlace]]) -> float:
    """A stage's own work, and what it waits for besides the pipeline; mean of its ranks."""
    busy = 0
    for line, place in ranks:
        busy += line.own_us
        for waits in place.waits_elsewhere:
            busy += line[waits]
    return busy / len(ranks)


# How much of a step a pipeline needs to fill and to drain. Pure.
#
# The slowest stage has something to do all the time but while the first micro-batch comes to it and
# the last one leaves it. What it waits in the pipeline is that; what it waits for others besides
# (gradients, shards) is not. Where it is the last stage, or all backward passes come after all
# forward ones (GPipe), that is what the other stages take for one micro-batch. In 1F1B an early
# stage waits less, as the others work while it still has something to do: filling shows in full
# only once stages are even.

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
    _census: GroupMembership = field(default_factory=GroupMembership)
    _micro_batches: int = 0
    _measured: float = 0.0
    _is_known: bool = False
    _is_last: bool = False
    """The slowest stage is."""

    def follow(self, frame: StepFrame, places: Mapping[int, RankPlace]) -> None:
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

    def _read(self, frame: StepFrame, places: Mapping[int, RankPlace]) -> float | None:
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


def _waits_us(line: StepLine, place: RankPlace) -> float:
    """What it has nothing to do for, and does not wait elsewhere than in the pipeline."""
    elsewhere = sum(line[waits] for waits in place.waits_elsewhere)
    return float(line.total - line.own_us - elsewhere)
