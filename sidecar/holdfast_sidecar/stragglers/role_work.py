"""Ranks of one role as they can be compared: own times, had all of them had as much work."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from holdfast_sidecar.records.steps import StepLine
from holdfast_sidecar.stragglers.own_time import Own, OwnTimes
from holdfast_sidecar.stragglers.work import WorkFit, is_uneven

LASTS = 256
"""Frames. Work that was even for so long is even again, and needs no sizes told."""

SAME = 0.02
"""Tokens that differ by less are as many; then the squares tell how the work differs."""


@dataclass(frozen=True)
class Company:
    """Of one frame; all sequences in the order of `ranks`."""

    ranks: Sequence[int]
    lines: Sequence[StepLine]
    own: Sequence[int]
    scaled: Sequence[float]
    """Own time, had it had as much work as the median rank."""
    whole_us: float
    """A step of the median rank, from end to end."""
    by_work: Sequence[float] = field(default_factory=list)
    """What more work explains, as a part of the peers' time; empty where work is even."""
    work: Sequence[float] = field(default_factory=list)
    """Work beside the median rank's; empty where it is even."""


class RoleWork:
    """Of one role: whether its work varies, and what it costs."""

    def __init__(self) -> None:
        self.left_out: list[tuple[list[int], str]] = []
        """Of the newest frame: ranks that can't be judged, and why."""
        self._fit = WorkFit()
        self._varied = 0
        """Frames until the work counts as even again."""

    @property
    def varies(self) -> bool:
        """Whether ranks of this role lately had more to do than others."""
        return self._varied > 0

    def take(self, times: OwnTimes, suspects: Collection[int]) -> Company | None:
        """One frame of two ranks or more; `suspects` teach nothing of what work costs."""
        self.left_out = []
        rows = times.times
        told = [row for row in rows if row.line.tokens > 0]
        with_squares = bool(told) and all(row.line.squares > 0 for row in told)
        tokens = [row.line.tokens for row in told]
        squares = [row.line.squares for row in told] if with_squares else [0] * len(told)
        is_varied = is_uneven(tokens) or (with_squares and is_uneven(squares))
        self._varied = LASTS if is_varied else max(self._varied - 1, 0)
        if not self.varies:
            return _even(times)
        if len(told) < len(rows):
            silent = [row.rank for row in rows if row.line.tokens <= 0]
            self.left_out.append((silent, "work varies, and no size of theirs is told"))
        return self._scaled(told, tokens, squares, times.whole_us, suspects)

    def _scaled(
        self,
        rows: list[Own],
        tokens: list[int],
        squares: list[int],
        whole_us: float,
        suspects: Collection[int],
    ) -> Company | None:
        if len(rows) < 2:
            return None
        company = None
        if self._fit.is_ready:
            expected = [max(e, 1.0) for e in map(self._fit.expects, tokens, squares)]
            company = _scaled_by(expected, rows, _beside(tokens, squares), whole_us)
        else:
            ranks = [row.rank for row in rows]
            self.left_out.append((ranks, "work varies, and what it costs is not known yet"))
        learnt = zip(rows, tokens, squares, strict=True)
        self._fit.take([(t, s, row.compute) for row, t, s in learnt if row.rank not in suspects])
        return company


def _even(times: OwnTimes) -> Company:
    ranks, own, _, lines = zip(*times.times, strict=True)
    return Company(ranks, lines, own, own, times.whole_us)


def _scaled_by(
    expected: Sequence[float], rows: Sequence[Own], work: Sequence[float], whole_us: float
) -> Company:
    usual = statistics.median(expected)
    scaled = [
        row.own + row.compute * (usual / e - 1.0) for row, e in zip(rows, expected, strict=True)
    ]
    middle = max(statistics.median(scaled), 1.0)
    ranks, own, _, lines = zip(*rows, strict=True)
    by_work = [(e - usual) / middle for e in expected]
    return Company(ranks, lines, own, scaled, whole_us, by_work, work)


def _beside(tokens: Sequence[int], squares: Sequence[int]) -> list[float]:
    """Work beside the median rank's: of tokens, or of squares where tokens are the same."""
    usual_tokens = statistics.median(tokens)
    usual_squares = statistics.median(squares)
    beside = []
    for count, square in zip(tokens, squares, strict=True):
        ratio = count / usual_tokens
        if abs(ratio - 1.0) < SAME and usual_squares > 0:
            ratio = square / usual_squares
        beside.append(ratio)
    return beside
