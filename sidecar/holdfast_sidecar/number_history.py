"""What is remembered of a rank's losses and gradient norms, and how far the newest are from usual.

Pure. A robust z-score: the distance from the median of the attempt's latest values, in units of
their median absolute deviation, which a few wild values among them don't move.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from holdfast.page import Record, RecordFlag
from holdfast_sidecar.config.settings import NumbersSettings

WINDOW = 128
"""Values that say what is usual: enough for a steady median, few enough to follow a falling loss.
A loss that has kept a new level for as long is taken to have moved there."""

SETTLED = 64
"""Before there are so many nothing is called unusual: an attempt's first steps vary by nature."""

CHUNK = 32
"""What is usual is worked out anew after so many values, not for each."""

DEVIATION_OF_NORMAL = 1.4826
"""A normal distribution's standard deviation is so many median absolute deviations."""

LEAST_SHARE = 0.05
"""A loss that hardly varies would make a high score of any trifle: its deviation counts as at
least this share of its median, so that ten of them are half as much again."""

LEAST_OF_LOGARITHMS = 0.2
"""Norms are compared by their logarithms, since they vary by factors: twofold is nothing to note,
and ten of these are more than sevenfold."""

LEAST = 1e-9
"""Deviation of what is constantly nothing."""

_LOSS, _GRADIENT = int(RecordFlag.LOSS), int(RecordFlag.GRADIENT)
_EITHER = _LOSS | _GRADIENT


@dataclass(frozen=True)
class Series:
    """One kind of number. What is beyond the limit is not taken for usual, until it lasts."""

    least_share: float
    """See LEAST_SHARE; 0: these are logarithms, see LEAST_OF_LOGARITHMS."""
    usual: tuple[float, ...] = ()
    beyond: tuple[float, ...] = ()
    """The latest values, in a row, that were beyond the limit."""
    onset_step: int = -1
    """Step of the first of them; -1: the newest value is usual."""
    is_spike: bool = False
    """Whether they are as many as make a spike."""
    spikes: int = 0
    """How often so far they were."""
    limit: float = math.inf
    """From where on a value is beyond."""
    fresh: int = 0
    """So many usual values came since that was worked out."""

    def follow(self, values: Sequence[tuple[int, float]], settings: NumbersSettings) -> Series:
        """The series after these (step, value), oldest first; none of them is NaN or infinite."""
        usual, beyond = list(self.usual), list(self.beyond)
        onset, spikes, limit, fresh = self.onset_step, self.spikes, self.limit, self.fresh
        for step, value in values:
            if fresh >= CHUNK and len(usual) >= SETTLED:
                del usual[:-WINDOW]
                limit, fresh = find_limit(usual, self.least_share, settings.spike_z), 0
            if value < limit:
                usual.append(value)
                fresh += 1
                beyond, onset = [], -1
                continue
            onset = onset if beyond else step
            beyond.append(value)
            spikes += len(beyond) == settings.spike_steps
            if len(beyond) >= WINDOW:
                usual, beyond, onset, fresh = beyond, [], -1, CHUNK
        is_spike = len(beyond) >= settings.spike_steps
        kept = (tuple(usual[-WINDOW:]), tuple(beyond))
        return Series(self.least_share, *kept, onset, is_spike, spikes, limit, fresh)


def find_limit(values: Sequence[float], least_share: float, spike_z: float) -> float:
    """From where on a value is beyond what these have been."""
    middle = statistics.median(values)
    spread = statistics.median([abs(value - middle) for value in values])
    least = least_share * abs(middle) if least_share else LEAST_OF_LOGARITHMS
    return middle + spike_z * max(DEVIATION_OF_NORMAL * spread, least, LEAST)


@dataclass(frozen=True)
class NumberHistory:
    """Losses and gradient norms of one rank within one attempt."""

    loss: Series = Series(LEAST_SHARE)
    gradient: Series = Series(0.0)
    """Of the norms' logarithms."""
    ill_steps: int = 0
    """So many in a row were NaN or infinite, by loss or norm."""

    @property
    def spikes(self) -> int:
        """How often so far there was a spike, of either kind."""
        return self.loss.spikes + self.gradient.spikes

    @property
    def spike(self) -> Series | None:
        """The one that spikes now, the first if both do."""
        return min(
            (series for series in (self.loss, self.gradient) if series.is_spike),
            key=lambda series: series.onset_step,
            default=None,
        )


def follow_numbers(
    before: NumberHistory, records: Sequence[Record], settings: NumbersSettings
) -> NumberHistory:
    """The history after these records, oldest first."""
    told = [record for record in records if tells(record)]
    if not told:
        return before
    loss = before.loss.follow(list(_losses(told)), settings)
    gradient = before.gradient.follow(list(_logarithms_of_norms(told)), settings)
    return NumberHistory(loss, gradient, _count_ill(before.ill_steps, told))


def is_ill(record: Record) -> bool:
    """Whether something that became known with this record is NaN or infinite."""
    return bool(
        (record.flags & _LOSS and not math.isfinite(record.loss))
        or (record.flags & _GRADIENT and not math.isfinite(record.gradient_norm))
    )


def tells(record: Record) -> bool:
    """Whether a loss or a gradient norm became known with this record."""
    return bool(record.flags & _EITHER)


def _losses(records: Iterable[Record]) -> Iterator[tuple[int, float]]:
    for record in records:
        if record.flags & _LOSS and math.isfinite(record.loss):
            yield record.step, record.loss


def _logarithms_of_norms(records: Iterable[Record]) -> Iterator[tuple[int, float]]:
    for record in records:
        if record.flags & _GRADIENT and math.isfinite(record.gradient_norm):
            yield record.step, math.log(max(record.gradient_norm, LEAST))


def _count_ill(before: int, records: Iterable[Record]) -> int:
    ill = before
    for record in records:
        ill = ill + 1 if is_ill(record) else 0
    return ill
