"""One line of a rank out of its records of a block of steps. Pure."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from operator import and_, attrgetter
from typing import NamedTuple

from holdfast.page import Record, RecordFlag
from holdfast_sidecar.records.steps import StepLine
from holdfast_sidecar.stragglers.device_own import device_parts
from holdfast_sidecar.stragglers.load import Load

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


class Block(NamedTuple):
    """Whose line it is, and of which steps."""

    rank: int
    step: int
    """The last one."""
    stride: int
    by_device: bool = False
    """Its steps are timed by a device, now and then: without such a time nothing is known of its
    parts, as the host's clock says when the host was kept and no more."""


def condense(block: Block, records: Sequence[Record], load: Load) -> StepLine:
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
