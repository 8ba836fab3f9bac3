"""The newest stretch of steps: what each rank's steps took in the mean, part by part.

Means, not medians: a step that takes ten times as long, once in ten, doubles what the job takes,
and what is told of the job's time has to add up to it.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter

from holdfast_sidecar.records.steps import StepLine
from holdfast_sidecar.stragglers.frame import Frame

CHUNKS = 8
CHUNK_FRAMES = 16
"""Some 120 frames, of 0.1 s each or of one step where that takes longer: ten seconds to some
minutes, in which what comes every fiftieth step comes several times."""

LOOKED_AT = 256
"""Ranks: of more of them every third, fifth, … tells the middle one as well; odd, as layouts are
made of powers of two. Who spent most is told only where all are looked at; who is slow is told by
name anyway."""

TOTAL = "total"
LOST = "lost"
PARTS = ("data", "transfer", "forward", "backward", "communicating", "optimizer", "other")
BESIDE = ("overlapped", "collector")
FIELDS = (TOTAL, *PARTS, *BESIDE, LOST)
_fields_of = itemgetter(*(StepLine._fields.index(name) for name in FIELDS))
_LOST = FIELDS.index(LOST)


@dataclass
class _Sum:
    """Of one rank, microseconds."""

    steps: int = 0
    us: list[float] = field(default_factory=lambda: [0.0] * len(FIELDS))
    rare_steps: int = 0
    """Beside these: in which it did so much else that their parts are not told."""
    rare_us: float = 0.0

    def take(self, line: StepLine, steps: int) -> None:
        self.steps += steps
        fields = zip(self.us, _fields_of(line), strict=True)
        self.us = [so_far + us * steps for so_far, us in fields]

    def means(self) -> list[float]:
        steps = max(1, self.steps)
        means = [us / steps for us in self.us]
        means[_LOST] = (self.us[_LOST] + self.rare_us) / max(1, self.steps + self.rare_steps)
        return means


@dataclass
class _Chunk:
    first_step: int
    frames: int = 0
    sums: dict[int, _Sum] = field(default_factory=dict)


@dataclass(frozen=True)
class Means:
    """Of the stretch; microseconds of a step."""

    first_step: int
    middle: Mapping[str, float]
    """Field -> of the middle rank; `total` with what was lost."""
    most: Mapping[str, tuple[int, float]]
    """Field -> the rank that spent most, and how much; empty where not all are looked at."""


class Stretch:
    """Of one attempt."""

    def __init__(self) -> None:
        self._chunks: deque[_Chunk] = deque(maxlen=CHUNKS)
        self._every = 1

    def hear(self, lines: Iterable[StepLine]) -> None:
        """Of blocks without an ordinary step, which are in no frame: what was done instead."""
        for line in lines:
            if not line.steps and line.lost > 0 and self._chunks and self._looks_at(line.rank):
                one = self._chunks[-1].sums.setdefault(line.rank, _Sum())
                one.rare_steps += line.stride
                one.rare_us += float(line.lost * line.stride)

    def take(self, frame: Frame) -> None:
        """One more frame."""
        if not self._chunks or self._chunks[-1].frames >= CHUNK_FRAMES:
            self._chunks.append(_Chunk(frame.after_step + 1))
        chunk, steps = self._chunks[-1], frame.step - frame.after_step
        chunk.frames += 1
        if len(frame.lines) > LOOKED_AT:
            self._every = max(self._every, len(frame.lines) // LOOKED_AT | 1)
        for rank, line in frame.lines.items():
            if line.total > 0 and self._looks_at(rank):
                one = chunk.sums.get(rank)
                if one is None:
                    one = chunk.sums[rank] = _Sum()
                one.take(line, steps)

    def _looks_at(self, rank: int) -> bool:
        return rank % self._every == 0

    def means(self) -> Means | None:
        """None: no rank told of any."""
        ranks: dict[int, _Sum] = {}
        for chunk in self._chunks:
            for rank, one in chunk.sums.items():
                ranks[rank] = _added(ranks[rank], one) if rank in ranks else one
        by_rank = {rank: one.means() for rank, one in ranks.items() if one.steps}
        if not by_rank:
            return None
        middle, most = {}, {}
        for at, name in enumerate(FIELDS):
            middle[name] = statistics.median(means[at] for means in by_rank.values())
            if self._every == 1:
                us, rank = max((means[at], rank) for rank, means in by_rank.items())
                most[name] = (rank, us)
        middle[TOTAL] = statistics.median(m[0] + m[_LOST] for m in by_rank.values())
        return Means(self._chunks[0].first_step, middle, most)


def _added(one: _Sum, other: _Sum) -> _Sum:
    return _Sum(
        one.steps + other.steps,
        [a + b for a, b in zip(one.us, other.us, strict=True)],
        one.rare_steps + other.rare_steps,
        one.rare_us + other.rare_us,
    )
