"""How long a step should take for the work in it: own = a + b x tokens + c x squares, per role.

Long sequences cost more, the square of their length in attention, and that is no slow hardware
(ResiHP, arXiv 2605.06374, predicts step times the same way). None of the three can be negative: a
rank with half as much work again takes at most that much longer in what grows with tokens, so a
slow rank that happens to have the most work is not taken for the price of work.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from operator import itemgetter

from holdfast_sidecar.records.steps import StepLine
from holdfast_sidecar.stragglers.noise import MAD_TO_SIGMA

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
