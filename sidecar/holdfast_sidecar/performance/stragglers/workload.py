"""How long a step should take for the work in it: own = a + b x tokens + c x squares, per role.

Long sequences cost more, the square of their length in attention, and that is no slow hardware
(ResiHP, arXiv 2605.06374, predicts step times the same way). None of the three can be negative: a
rank with half as much work again takes at most that much longer in what grows with tokens, so a
slow rank that happens to have the most work is not taken for the price of work.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from operator import itemgetter
from statistics import fmean

from holdfast_sidecar.performance.stragglers.frame import StepFrame
from holdfast_sidecar.performance.stragglers.peers import PARTS
from holdfast_sidecar.performance.stragglers.placement import RankPlace
from holdfast_sidecar.performance.stragglers.statistics import MAD_TO_SIGMA
from holdfast_sidecar.records.steps import StepLine

Row = tuple[float, float, float]
"""Tokens, squares, microseconds."""

FORGETS = 0.97
"""Per frame: the last thirty count."""

ENOUGH = 30.0
"""Observations for three unknowns."""

EVEN = 0.02
"""Work that differs by less than that needs no fit: its share of the time would be lost in the
noise."""

SAMPLE = 128
"""Ranks of a role whose times are used, another choice of them each frame: more would make the fit
no better, only dearer."""

TERMS = 3


class WorkFit:
    """Of one role."""

    def __init__(self) -> None:
        self._scale = (0.0, 0.0)
        self._seen = 0.0
        self._products = [[0.0] * TERMS for _ in range(TERMS)]
        self._answers = [0.0] * TERMS
        self._factors = (0.0, 0.0, 0.0)
        self._turn = 0
        self.spread = 0.1
        """Typical distance of a time from what the fit says, as a part of it."""

    @property
    def is_ready(self) -> bool:
        """Whether times can be told from work."""
        return self._seen >= ENOUGH and any(self._factors)

    def expected(self, tokens: Sequence[float], squares: Sequence[float]) -> list[float]:
        """Microseconds for so much work each."""
        a, b, c = self._factors
        if c == 0.0:
            return [max(a + b * count, 1.0) for count in tokens]
        return [
            max(a + b * count + c * square, 1.0)
            for count, square in zip(tokens, squares, strict=True)
        ]

    def expected_of(self, tokens: float, squares: float) -> float:
        """The same of one."""
        a, b, c = self._factors
        return max(a + b * tokens if c == 0.0 else a + b * tokens + c * squares, 1.0)

    def choose(self, places: Sequence[int]) -> Sequence[int]:
        """Those of which the times are wanted in this frame."""
        step = -(-len(places) // SAMPLE) or 1
        self._turn = (self._turn + 1) % step
        return places[self._turn :: step]

    def take(self, rows: Sequence[Row]) -> None:
        """One frame's work and times, of ranks that are not slow."""
        if not rows:
            return
        if not self._scale[0]:
            self._scale = (rows[0][0] or 1.0, rows[0][1] or 1.0)
        self._add(rows)
        self._solve()

    def _add(self, rows: Sequence[Row]) -> None:
        tokens_scale, squares_scale = self._scale
        weights = self._weights(rows)
        self._seen = self._seen * FORGETS + sum(weights)
        products = [[value * FORGETS for value in row] for row in self._products]
        answers = [value * FORGETS for value in self._answers]
        for (tokens, squares, time), weight in zip(rows, weights, strict=True):
            x = (1.0, tokens / tokens_scale, squares / squares_scale)
            for i in range(TERMS):
                scaled = weight * x[i]
                answers[i] += scaled * time
                row = products[i]
                row[0] += scaled
                row[1] += scaled * x[1]
                row[2] += scaled * x[2]
        self._products, self._answers = products, answers

    def _weights(self, rows: Sequence[Row]) -> list[float]:
        """Less for those far from the fit, measured by how the whole frame lies to it."""
        if not self.is_ready:
            return [1.0] * len(rows)
        tokens, squares, times = zip(*rows, strict=True)
        expected = self.expected(tokens, squares)
        ratios = [time / usual for time, usual in zip(times, expected, strict=True)]
        middle = sorted(ratios)[len(ratios) // 2] or 1.0
        away = [abs(ratio / middle - 1.0) for ratio in ratios]
        typical = MAD_TO_SIGMA * sorted(away)[len(away) // 2]
        self.spread += 0.1 * (max(typical, 0.002) - self.spread)
        limit = 2.0 * self.spread
        return [1.0 if distance <= limit else limit / distance for distance in away]

    def _solve(self) -> None:
        best, factors = float("inf"), (0.0, 0.0, 0.0)
        for count in range(1, TERMS + 1):
            for terms in combinations(range(TERMS), count):
                found = _least_squares(self._products, self._answers, terms)
                if found is None:
                    continue
                left = -sum(found[i] * self._answers[i] for i in range(TERMS))
                # A term more has to earn its place, else noise would pick among alike ones.
                if left < best - 1e-9 * abs(best if best != float("inf") else left):
                    best, factors = left, found
        a, b, c = factors
        self._factors = (a, b / self._scale[0], c / self._scale[1])


def _least_squares(
    products: Sequence[Sequence[float]], answers: Sequence[float], terms: Sequence[int]
) -> tuple[float, float, float] | None:
    """The factors of those terms, the others nothing; None where one is negative or open."""
    rows = [[products[i][j] for j in terms] + [answers[i]] for i in terms]
    size = len(terms)
    for column in range(size):
        pivot = max(range(column, size), key=lambda i: abs(rows[i][column]))
        rows[column], rows[pivot] = rows[pivot], rows[column]
        head = rows[column][column]
        # Tokens and squares that grow alike can't be told apart: either may do alone.
        if abs(head) <= 1e-7 * products[terms[column]][terms[column]]:
            return None
        for i in range(size):
            if i != column:
                share = rows[i][column] / head
                rows[i] = [a - share * b for a, b in zip(rows[i], rows[column], strict=True)]
    found = [0.0] * TERMS
    for column, term in enumerate(terms):
        found[term] = rows[column][size] / rows[column][column]
    return None if min(found) < 0 else (found[0], found[1], found[2])


def of_one_source(lines: Sequence[StepLine]) -> Sequence[StepLine]:
    """The lines with sizes that can be compared: what scripts report is of another unit than what
    is seen in batches, so that where both are told the work of the fewer ranks is not known. Often
    one rank reports for all."""
    reported = sum(map(_is_reported, lines))
    if not 0 < reported < len(lines):
        return lines
    usual = int(2 * reported > len(lines))
    return [
        line if line.work_reported == usual else line._replace(tokens=0, squares=0)
        for line in lines
    ]


_is_reported = itemgetter(StepLine._fields.index("work_reported"))


def is_uneven(amounts: Sequence[float]) -> bool:
    """Whether that work differs enough to matter."""
    return bool(amounts) and max(amounts) > (1.0 + EVEN) * min(amounts)


# How long each rank would take with the mean of its role's work: by what work costs (`work`).

Yardstick = Callable[[StepLine], float]
"""A line's own time, had it had as much work as the others of its role."""


@dataclass
class EvenWork:
    """Follows all roles in which work varies."""

    _fits: dict[str, WorkFit] = field(default_factory=dict)

    def follow(
        self, frame: StepFrame, places: Mapping[int, RankPlace], slow: Collection[int]
    ) -> dict[int, float]:
        """rank -> its own time, microseconds of a step, if all ranks of its role had the same work;
        empty while that is not known. `slow` ones teach nothing of what work costs."""
        by_role: dict[str, list[StepLine]] = {}
        for rank, line in frame.lines.items():
            if rank in places:
                by_role.setdefault(places[rank].role, []).append(line)
        if len(self._fits) > len(by_role):
            self._fits = {role: fit for role, fit in self._fits.items() if role in by_role}
        found: dict[int, float] = {}
        for role, all_lines in by_role.items():
            lines = [line for line in of_one_source(all_lines) if line.tokens > 0]
            if len(lines) > 1 and _varies(lines):
                found.update(self._even_out(role, lines, slow))
        return found

    def yardstick(self, role: str, lines: Sequence[StepLine]) -> Yardstick | None:
        """What makes own times of a role comparable, by a choice of its lines: as they are where
        work is even; None where it varies and what it costs is not known."""
        lines = of_one_source(lines)
        if not _varies(lines):
            return _as_it_is
        fit = self._fits.get(role)
        if fit is None or not fit.is_ready or any(line.tokens <= 0 for line in lines):
            return None
        return partial(_scaled, fit, fmean(_expected(fit, lines)))

    def _even_out(
        self, role: str, lines: Sequence[StepLine], slow: Collection[int]
    ) -> dict[int, float]:
        fit = self._fits.setdefault(role, WorkFit())
        found: dict[int, float] = {}
        if fit.is_ready:
            expected = _expected(fit, lines)
            mean = fmean(expected)
            found = {
                line.rank: own + compute * (mean / one - 1.0)
                for line, (own, compute), one in zip(
                    lines, map(_times, lines), expected, strict=True
                )
            }
        chosen = [lines[place] for place in fit.choose(range(len(lines)))]
        fit.take(
            [
                (float(line.tokens), float(line.squares), float(_times(line)[1]))
                for line in chosen
                if line.rank not in slow
            ]
        )
        return found


def _as_it_is(line: StepLine) -> float:
    return float(line.own_us)


def _scaled(fit: WorkFit, mean: float, line: StepLine) -> float:
    expected = fit.expected_of(line.tokens, line.squares)
    own, compute = _times(line)
    return own + compute * (mean / expected - 1.0)


def _expected(fit: WorkFit, lines: Sequence[StepLine]) -> list[float]:
    return fit.expected([line.tokens for line in lines], [line.squares for line in lines])


def _times(line: StepLine) -> tuple[int, int]:
    """Its own time, and what of it grows with the work."""
    data, transfer, forward, backward, optimizer, other, waits_seen = _parts(line)
    compute = transfer + forward + (backward if waits_seen else 0) + optimizer
    return compute + data + other, compute


_parts = itemgetter(*(StepLine._fields.index(name) for name in (*PARTS, "waits_seen")))


def _varies(lines: Sequence[StepLine]) -> bool:
    squares = [line.squares for line in lines if line.squares > 0]
    return is_uneven([line.tokens for line in lines if line.tokens > 0]) or is_uneven(squares)


# The newest stretch of steps: what each rank's steps took in the mean, part by part.
#
# Means, not medians: a step that takes ten times as long, once in ten, doubles what the job takes,
# and what is told of the job's time has to add up to it.

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
STRETCH_PARTS = ("data", "transfer", "forward", "backward", "communicating", "optimizer", "other")
BESIDE = ("overlapped", "collector")
FIELDS = (TOTAL, *STRETCH_PARTS, *BESIDE, LOST)
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
class StretchMeans:
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

    def take(self, frame: StepFrame) -> None:
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

    def means(self) -> StretchMeans | None:
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
        return StretchMeans(self._chunks[0].first_step, middle, most)


def _added(one: _Sum, other: _Sum) -> _Sum:
    return _Sum(
        one.steps + other.steps,
        [a + b for a, b in zip(one.us, other.us, strict=True)],
        one.rare_steps + other.rare_steps,
        one.rare_us + other.rare_us,
    )
