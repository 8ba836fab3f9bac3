"""What a rank did itself and what it waited for, by its GPU's clock. Pure.

A host that trains on a GPU runs ahead of it: what its own clock gives to a part is when it was kept
there, not what the part took. Some records carry the times of an earlier step by the device's own
clock; ranks sample different steps, so each counts by its shares of that step.
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
from typing import NamedTuple

from holdfast.contract.page import RING_CAPACITY, Identity, Record, RecordFlag, Word
from holdfast_sidecar.performance.stragglers.load import Counts, Load, Meter, NodeLoad
from holdfast_sidecar.ranks.observation import RankLook
from holdfast_sidecar.records.steps import StepLine, spell


class DeviceParts(NamedTuple):
    """Means of a step, microseconds, named as in a line of steps. Their sum is `total`."""

    samples: int
    """Steps that were timed."""
    total: float
    data: float
    """The device stood idle while its host waited for a batch."""
    transfer: float
    forward: float
    backward: float
    communicating: float
    """Of the stream that computes: it stood and waited for others."""
    optimizer: float
    other: float

    @property
    def own(self) -> float:
        """Its own work, waiting removed."""
        return self.total - self.communicating


def device_parts(records: Sequence[Record], ordinary: Sequence[Record]) -> DeviceParts | None:
    """How the mean ordinary step divides by the device's clock; None: nothing of it is known.

    records: those of a block. A time that is told among them of a step among them which was no
    ordinary one says nothing; of a step before them it counts.
    """
    if not ordinary:
        return None
    usual = {record.step for record in ordinary}
    passed_over = {record.step for record in records} - usual
    total = sum(record.total_us for record in ordinary) / len(ordinary)
    fetching = sum(record.data_us for record in ordinary) / len(ordinary)
    shares = [
        _shares(record.device_us, fetching)
        for record in records
        if record.device_lag and record.step - record.device_lag not in passed_over
    ]
    shares = [share for share in shares if share is not None]
    if not shares or total <= 0:
        return None
    means = [total * sum(column) / len(shares) for column in zip(*shares, strict=True)]
    return DeviceParts(len(shares), total, *means)


def _shares(device_us: Sequence[int], fetching_us: float) -> tuple[float, ...] | None:
    """Parts of one, in the order of `DeviceParts`; None when the device did nothing.

    Among what is nobody's part it stands and waits for its host. So much of that as the host itself
    waited for a batch was for the batch.
    """
    transfer, forward, backward, communicating, optimizer, other = device_us
    whole = sum(device_us)
    if whole <= 0:
        return None
    data = min(other, fetching_us)
    parts = (data, transfer, forward, backward, communicating, optimizer, other - data)
    return tuple(part / whole for part in parts)


# How often a rank's steps are timed by its device: in blocks shorter than that some have no time.
#
# Pure. Hooks time as many steps as keep the price small, each rank by its own price.

MOST = 64
"""The hooks time a step in so many at least; more apart they were kept from it."""


@dataclass
class DeviceRhythm:
    """One rank's."""

    _newest: int = -1
    """The last step that was timed; -1: none was."""
    _gaps: deque[int] = field(default_factory=lambda: deque(maxlen=2))

    def hear(self, records: Iterable[Record]) -> None:
        """Some more of its records."""
        for record in records:
            if record.device_lag:
                step = record.step - record.device_lag
                if 0 <= self._newest < step:
                    self._gaps.append(step - self._newest)
                self._newest = step

    @property
    def is_known(self) -> bool:
        """Whether its steps are timed so at all."""
        return self._newest >= 0

    @property
    def span(self) -> int:
        """Steps of a block that has a time in it, a power of two. One time that was missed makes no
        block longer."""
        if not self._gaps:
            return 1
        return 1 << (min(MOST, *self._gaps) - 1).bit_length()


# From the records of this node's ranks to lines of their latest steps. Pure; it keeps what of a
# block is not whole yet, and the newest lines to be told.

# One line of a rank out of its records of a block of steps. Pure.

HARDLY = 8
"""An eighth of a step: what was saved, evaluated or compiled in less leaves it an ordinary one. A
job may take a snapshot in each of its steps, and by default it takes 0.5 % of their time."""

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


class BlockKey(NamedTuple):
    """Whose line it is, and of which steps."""

    rank: int
    step: int
    """The last one."""
    stride: int
    by_device: bool = False
    """Its steps are timed by a device, now and then: without such a time nothing is known of its
    parts, as the host's clock says when the host was kept and no more."""


def condense(block: BlockKey, records: Sequence[Record], load: Load) -> StepLine:
    """One line of these records."""
    ordinary = [record for record in records if is_ordinary(record)]
    by_device = _by_device(records, ordinary)
    if block.by_device and by_device is None:
        ordinary = []
    means = _means([_means_us(record) for record in ordinary], _MEANS)
    waits = _means([record.waits_us for record in ordinary], _WAITS)
    flags = functools.reduce(and_, (record.flags for record in ordinary), ~0 if ordinary else 0)
    parts, (collector, overlapped, tokens, squares) = means[:_PARTS], means[_PARTS:]
    parts = by_device or parts
    return StepLine._make(
        (
            *(block.rank, block.step, block.stride, len(ordinary), sum(parts), *parts),
            int(by_device is not None or flags & _WAITS_SEEN > 0),
            *(collector, overlapped, *waits, tokens, squares),
            int(flags & _WORK_REPORTED > 0),
            round(sum(map(_rare_us, records)) / max(1, len(records))),
            sum(record.compiling_us > 0 for record in records),
            *load,
            round(sum(record.evaluating_us for record in records) / max(1, len(records))),
        )
    )


def _by_device(records: Sequence[Record], ordinary: Sequence[Record]) -> list[int] | None:
    """The parts by the device's clock, which tells waiting from work by itself; None: not known."""
    if not any(record.device_lag for record in records):
        return None
    told = device_parts(records, ordinary)
    return None if told is None else [round(part) for part in told[-_PARTS:]]


def is_ordinary(record: Record) -> bool:
    """Whether its parts were measured, and it did next to nothing that comes rarely."""
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


# How many steps a block has: the same on every node, without a word between them. Pure.
#
# Nodes see the same step times, but for their noise; where two differ by a power of two all the
# same, who puts the lines together takes the longer blocks.

LEAST_BLOCK_S = 0.1
"""Reports are written every 0.3 s: three blocks in each are as fine as anybody can follow, and a
handful of them lies within the ten steps in which somebody slow has to be found."""

RANKS_PER_S = 4096.0
"""Lines that a leader can take in at a twentieth of a core: with more ranks than that a block
lasts longer than a second."""

CHANGE = 4
"""A pace at the edge between two strides would have them change with every hiccup; a job whose
steps became four times as long does something else than before."""

LONGEST = 1 << 16
"""Steps of microseconds are no steps of training, and their times are not known well enough."""


def stride_for(step_s: float, world_size: int) -> int:
    """The smallest power of two that makes a block last long enough."""
    block_s = max(LEAST_BLOCK_S, world_size / RANKS_PER_S)
    if step_s * LONGEST <= block_s:
        return LONGEST
    return int(2 ** max(0, math.ceil(math.log2(block_s / step_s))))


def next_stride(stride: int, step_s: float, world_size: int) -> int:
    """The stride in force, given the one so far; 0: there was none."""
    wanted = stride_for(step_s, world_size)
    keeps = stride and wanted < CHANGE * stride and stride < CHANGE * wanted
    return stride if keeps else wanted


WARM_UP_STEPS = 3
"""An attempt's first steps allocate, compile and rebuild buckets, each rank in its own time."""

SETTLING_STEPS = 5
SETTLING_S = 2.0
"""By so many ordinary steps the stride is chosen, or by what there are once they took that long."""

TIMED_WITHIN = 12
"""The hooks time the sixth step of a rank that trains on a GPU by the GPU's clock, and know it one
or two steps later: what the host's clock says of the steps before is not told."""

PACE_STEPS = 16
"""Steps by whose median it may change later."""

TOLD_LINES = 8
TOLD_FOR_S = 4.0
"""So many lines of a rank are told, as a report may be missed. Of those that are older than a dozen
reports only the newest two: in a job of thousands of ranks blocks last a second, and everybody
reads everybody's reports."""


@dataclass
class RankWindow:
    """One rank's, of one process."""

    identity: Identity
    meter: Meter = field(default_factory=Meter)
    rhythm: DeviceRhythm = field(default_factory=DeviceRhythm)
    pace_us: deque[int] = field(default_factory=lambda: deque(maxlen=PACE_STEPS))
    """What its latest steps took, measured in parts or not."""
    stride: int = 0
    told: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=TOLD_LINES))
    """(when its block ended, ns, the line)"""
    has_device: bool = False
    """It holds memory of one: its steps may be timed by its clock."""
    heard: int = 0
    """Its records."""
    _block: list[Record] = field(default_factory=list)
    _ends: int = 0
    """Last step of the block that is open."""

    def hear(self, records: Sequence[Record]) -> Sequence[Record]:
        """Those of these new records that count."""
        self.rhythm.hear(records)
        counted = records[max(0, WARM_UP_STEPS - self.heard) :]
        self.heard += len(records)
        self.pace_us.extend(record.total_us for record in counted if not is_rare(record))
        return counted

    def take(self, records: Iterable[Record], stride: int, around: NodeLoad) -> Iterator[StepLine]:
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

    def _close(self, around: NodeLoad) -> StepLine:
        block = BlockKey(self.identity.rank, self._ends, self.stride, self.rhythm.is_known)
        line = condense(block, self._block, self.meter.read(around))
        self.told.append((self._block[-1].end_ns, spell(line)))
        self._block = []
        return line


@dataclass
class NodeWindows:
    """Those of one node's ranks; all of it ends with the attempt."""

    stride: int = 0
    """0: the first steps have not shown it yet."""
    _by_pace: int = 0
    """What steps of this length ask for, however their parts are timed."""
    _ranks: dict[int, RankWindow] = field(default_factory=dict)
    _waiting: dict[int, deque[Record]] = field(default_factory=dict)
    """Records of steps from before the stride was known."""

    def follow(
        self,
        looks: Iterable[RankLook],
        counts: Mapping[int, Counts],
        around: Mapping[int, NodeLoad],
    ) -> list[StepLine]:
        """The lines that are new. looks: of just now, each with its new records."""
        looks = list(looks)
        self._keep(looks)
        heard = {}
        for look in looks:
            window = self._ranks[look.rank]
            window.meter.note(counts.get(look.rank))
            window.has_device = look.words[Word.MEMORY_TOTAL] > 0
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
        self, rank: int, records: Sequence[Record], around: Mapping[int, NodeLoad]
    ) -> Iterator[StepLine]:
        if not self.stride:
            self._waiting.setdefault(rank, deque(maxlen=RING_CAPACITY)).extend(records)
            return
        for earlier in (self._waiting.pop(rank, ()), records):
            yield from self._ranks[rank].take(earlier, self.stride, around.get(rank, NodeLoad()))

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
            self.stride, self._by_pace, self._waiting = 0, 0, {}

    def _settle(self, world_size: int) -> None:
        there = [one for one in self._ranks.values() if one.pace_us]
        if not there or (not self.stride and all(map(_is_fresh, there))):
            return
        step_s = statistics.median(statistics.median(one.pace_us) for one in there) / 1e6
        self._by_pace = next_stride(self._by_pace, step_s, world_size)
        self.stride = max(self._by_pace, *(one.rhythm.span for one in there))


def _is_fresh(window: RankWindow) -> bool:
    """Whether too few of its steps are known to choose a stride by."""
    if window.has_device and not window.rhythm.is_known and window.heard < TIMED_WITHIN:
        return True
    return len(window.pace_us) < SETTLING_STEPS and sum(window.pace_us) < SETTLING_S * 1e6
