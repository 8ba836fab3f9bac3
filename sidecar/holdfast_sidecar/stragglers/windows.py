"""From the records of this node's ranks to lines of their latest steps. Pure; it keeps what of a
block is not whole yet, and the newest lines to be told.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import and_, attrgetter

from holdfast.page import RING_CAPACITY, Identity, Record, RecordFlag
from holdfast_sidecar.observation import RankLook
from holdfast_sidecar.records.steps import StepLine, spell
from holdfast_sidecar.stragglers.load import Counts, Load, Meter, Surroundings
from holdfast_sidecar.stragglers.stride import next_stride

WARM_UP_STEPS = 3
"""An attempt's first steps allocate, compile and rebuild buckets, each rank in its own time."""

SETTLING_STEPS = 5
SETTLING_S = 2.0
"""By so many ordinary steps the stride is chosen, or by what there are once they took that long."""

PACE_STEPS = 16
"""Steps by whose median it may change later."""

HARDLY = 8
"""An eighth of a step: what was saved, evaluated or compiled in less leaves it an ordinary one. A
job may take a snapshot in each of its steps, and by default it takes 2 % of their time."""

TOLD_LINES = 8
TOLD_FOR_S = 4.0
"""So many lines of a rank are told, as a report may be missed. Of those that are older than a dozen
reports only the newest two: in a job of thousands of ranks blocks last a second, and everybody
reads everybody's reports."""

_WAITS_SEEN = int(RecordFlag.WAITS_SEEN)
_WORK_REPORTED = int(RecordFlag.WORK_REPORTED)
_NOT_ORDINARY = int(RecordFlag.WHOLE_ONLY | RecordFlag.TRACED)
"""As numbers: a flag's own operators take ten times as long, and this is done for every step."""
_PARTS = 7
_means_us: Callable[[Record], tuple[float, ...]] = attrgetter(
    *("data_us", "transfer_us", "forward_us", "backward_us", "communicating_us", "optimizer_us"),
    *("other_us", "collector_us", "overlapped_us", "tokens", "squares"),
)
_MEANS = 11
_WAITS = 4


@dataclass
class RankWindow:
    """One rank's, of one process."""

    identity: Identity
    meter: Meter = field(default_factory=Meter)
    pace_us: deque[int] = field(default_factory=lambda: deque(maxlen=PACE_STEPS))
    """What its latest steps took, measured in parts or not."""
    stride: int = 0
    told: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=TOLD_LINES))
    """(when its block ended, ns, the line)"""
    _warm_up: int = WARM_UP_STEPS
    _block: list[Record] = field(default_factory=list)
    _ends: int = 0
    """Last step of the block that is open."""

    def hear(self, records: Sequence[Record]) -> Sequence[Record]:
        """Those of these new records that count."""
        counted = records[min(self._warm_up, len(records)) :]
        self._warm_up -= len(records) - len(counted)
        self.pace_us.extend(record.total_us for record in counted if not is_rare(record))
        return counted

    def take(
        self, records: Iterable[Record], stride: int, around: Surroundings
    ) -> Iterator[StepLine]:
        """Put them into blocks of `stride` steps; the blocks that are over now."""
        for record in records:
            if self._block and record.step <= self._block[-1].step:
                self._block.clear()  # counted anew
            if self._block and record.step > self._ends:
                yield self._close(around)
            if not self._block:
                self._open(record.step, stride)
            self._block.append(record)
            if record.step == self._ends:
                yield self._close(around)

    def tell(self, now_s: float) -> Iterator[str]:
        """The newest lines, oldest first."""
        since_ns = (now_s - TOLD_FOR_S) * 1e9
        kept = max(2, sum(ended_ns >= since_ns for ended_ns, _ in self.told))
        return (text for _, text in islice(self.told, max(0, len(self.told) - kept), None))

    def _open(self, step: int, stride: int) -> None:
        """A stride is changed only where a block of the new one begins, too."""
        begins = (step - 1) // (self.stride or stride) * (self.stride or stride)
        if self.stride == 0 or begins % stride == 0:
            self.stride = stride
        self._ends = ((step - 1) // self.stride + 1) * self.stride

    def _close(self, around: Surroundings) -> StepLine:
        load = self.meter.read(around)
        line = condense(self.identity.rank, self._ends, self.stride, self._block, load)
        self.told.append((self._block[-1].end_ns, spell(line)))
        self._block = []
        return line


@dataclass
class Windows:
    """Those of one node's ranks; all of it ends with the attempt."""

    stride: int = 0
    """0: the first steps have not shown it yet."""
    _ranks: dict[int, RankWindow] = field(default_factory=dict)
    _waiting: dict[int, deque[Record]] = field(default_factory=dict)
    """Records of steps from before the stride was known."""

    def follow(
        self,
        looks: Iterable[RankLook],
        counts: Mapping[int, Counts],
        around: Mapping[int, Surroundings],
    ) -> list[StepLine]:
        """The lines that are new. looks: of just now, each with its new records."""
        looks = list(looks)
        self._keep(looks)
        heard = {}
        for look in looks:
            window = self._ranks[look.rank]
            window.meter.note(counts.get(look.rank))
            if look.records:
                heard[look.rank] = window.hear(look.records)
        if not heard:
            return []
        self._settle(looks[0].identity.world_size)
        return [line for rank in heard for line in self._take(rank, heard[rank], around)]

    def tell(self, now_s: float) -> list[str]:
        """What others are told of all ranks. Time is CLOCK_MONOTONIC seconds."""
        return [text for window in self._ranks.values() for text in window.tell(now_s)]

    def _take(
        self, rank: int, records: Sequence[Record], around: Mapping[int, Surroundings]
    ) -> Iterator[StepLine]:
        if not self.stride:
            self._waiting.setdefault(rank, deque(maxlen=RING_CAPACITY)).extend(records)
            return
        for earlier in (self._waiting.pop(rank, ()), records):
            yield from self._ranks[rank].take(
                earlier, self.stride, around.get(rank, Surroundings())
            )

    def _keep(self, looks: Iterable[RankLook]) -> None:
        """A page that changed hands, and an attempt above all, begins from nothing."""
        before = self._ranks
        self._ranks = {
            look.rank: held
            if (held := before.get(look.rank)) is not None and held.identity == look.identity
            else RankWindow(look.identity)
            for look in looks
        }
        if not any(one is before.get(rank) for rank, one in self._ranks.items()):
            self.stride, self._waiting = 0, {}

    def _settle(self, world_size: int) -> None:
        paces = [one.pace_us for one in self._ranks.values() if one.pace_us]
        if not paces:
            return
        if not self.stride and all(map(_is_short, paces)):
            return
        step_s = statistics.median(map(statistics.median, paces)) / 1e6
        self.stride = next_stride(self.stride, step_s, world_size)


def condense(rank: int, step: int, stride: int, records: Sequence[Record], load: Load) -> StepLine:
    """One line of these records."""
    ordinary = [record for record in records if is_ordinary(record)]
    means = _means([_means_us(record) for record in ordinary], _MEANS)
    waits = _means([record.waits_us for record in ordinary], _WAITS)
    flags = functools.reduce(and_, (record.flags for record in ordinary), ~0 if ordinary else 0)
    collector, overlapped, tokens, squares = means[_PARTS:]
    return StepLine._make(
        (
            *(rank, step, stride, len(ordinary), sum(means[:_PARTS]), *means[:_PARTS]),
            int(flags & _WAITS_SEEN > 0),
            *(collector, overlapped, *waits, tokens, squares),
            int(flags & _WORK_REPORTED > 0),
            round(sum(map(_rare_us, records)) / max(1, len(records))),
            sum(record.compiling_us > 0 for record in records),
            *load,
        )
    )


def is_ordinary(record: Record) -> bool:
    """Whether its parts were measured, nobody had it traced, and it did next to nothing that comes
    rarely."""
    return not record.flags & _NOT_ORDINARY and not is_rare(record)


def is_rare(record: Record) -> bool:
    """Whether saving, evaluating or compiling were a part of it that counts."""
    rare_us = _rare_us(record)
    return rare_us > 0 and HARDLY * rare_us >= record.total_us


def _rare_us(record: Record) -> int:
    return record.saving_us + record.evaluating_us + record.compiling_us


def _means(rows: Sequence[Sequence[float]], columns: int) -> list[int]:
    """Of each column; a script may report work that is no number, which says nothing."""
    if not rows:
        return [0] * columns
    count = len(rows)
    means = [sum(column) / count for column in zip(*rows, strict=True)] if count > 1 else rows[0]
    return [round(mean) if math.isfinite(mean) else 0 for mean in means]


def _is_short(pace_us: Sequence[int]) -> bool:
    """Whether too few steps are known to choose a stride by."""
    return len(pace_us) < SETTLING_STEPS and sum(pace_us) < SETTLING_S * 1e6
