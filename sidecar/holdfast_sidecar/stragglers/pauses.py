"""What ranks do rarely, evaluating or saving, while the others wait: a pause of theirs, where the
others do nothing of the kind.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast_sidecar.stragglers.frame import Frame
from holdfast_sidecar.stragglers.spells import Kind, Spell

LEAST = 0.2
"""Of a usual step's own time, in the mean over a frame."""

ROOM = 64
"""Frames by which the usual step is known."""


class Pause(NamedTuple):
    """One rank's in one frame, microseconds of a step in the mean over it."""

    rank: int
    kind: Kind
    beyond_us: float
    """What it takes longer than the middle one of its role."""


def pauses(frame: Frame, ranks: Sequence[int], usual_us: float) -> Iterator[Pause]:
    """Those of a role in which few pause; where many do, it is nobody's."""
    told = [rank for rank in ranks if rank in frame.rare or rank in frame.lines]
    if len(told) < 2:
        return
    took = sorted(frame.rare[rank].lost_us if rank in frame.rare else 0.0 for rank in told)
    middle_us = took[(len(took) - 1) // 2]
    long = [
        rank
        for rank in told
        if rank in frame.rare and frame.rare[rank].lost_us - middle_us > LEAST * usual_us
    ]
    if len(long) > max(1, len(told) // 4):
        return
    for rank in long:
        rare = frame.rare[rank]
        kind = Kind.EVALUATING if 2 * rare.evaluated_us > rare.lost_us else Kind.SAVING
        yield Pause(rank, kind, rare.lost_us - middle_us)


@dataclass
class Waiting:
    """What the job's steps take beyond the usual: a pause costs no more than the others waited for
    it, in the same frame or, where they met only in the next step, in the next one."""

    _totals_us: deque[float] = field(default_factory=lambda: deque(maxlen=ROOM))
    _owing: list[tuple[Spell, float, bool]] = field(default_factory=list)
    """Spells of the frame before, and what nobody was seen to wait of them so far."""
    _beyond_us: float = 0.0

    def follow(self, total_us: float, steps: int) -> None:
        """One more frame."""
        usual_us = statistics.median(self._totals_us) if self._totals_us else total_us
        self._totals_us.append(total_us)
        self._beyond_us = max(0.0, total_us - usual_us) * steps
        for spell, owed_us, is_told in self._owing:
            self._pay(spell, owed_us, is_told)
        self._owing = []

    def charge(self, spell: Spell, beyond_us: float, is_told: bool) -> None:
        """A pause in this frame, all its steps together. is_told: its rank is, for pausing."""
        owed_us = beyond_us - self._pay(spell, beyond_us, is_told)
        if owed_us > 0:
            self._owing.append((spell, owed_us, is_told))

    def _pay(self, spell: Spell, owed_us: float, is_told: bool) -> float:
        paid_us = min(owed_us, self._beyond_us)
        self._beyond_us -= paid_us
        spell.saved_us += paid_us
        spell.untold_us += 0.0 if is_told else paid_us
        return paid_us
