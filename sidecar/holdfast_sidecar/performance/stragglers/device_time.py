"""What a rank did itself and what it waited for, by its GPU's clock. Pure.

A host that trains on a GPU runs ahead of it: what its own clock gives to a part is when it was kept
there, not what the part took. Some records carry the times of an earlier step by the device's own
clock; ranks sample different steps, so each counts by its shares of that step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.contract.page import Record


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
