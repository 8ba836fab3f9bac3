"""Ranks of one role as they can be compared: own times, had all of them had as much work."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from holdfast_sidecar.records.steps import StepLine
from holdfast_sidecar.stragglers.own_time import OwnTimes
from holdfast_sidecar.stragglers.work import WorkFit, is_uneven, of_one_source

LASTS = 256
"""Frames. Work that was even for so long is even again, and needs no sizes told."""

SAME = 0.02
"""Tokens that differ by less are as many; then the squares tell how the work differs."""

_tokens_of = itemgetter(StepLine._fields.index("tokens"))
_squares_of = itemgetter(StepLine._fields.index("squares"))


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

    def works(self) -> list[float]:
        """Work beside the median rank's: of tokens, or of squares where tokens are the same."""
        tokens, squares = list(map(_tokens_of, self.lines)), list(map(_squares_of, self.lines))
        usual_tokens, usual_squares = statistics.median(tokens), statistics.median(squares)
        if not self.by_work or usual_tokens <= 0:
            return [1.0] * len(tokens)
        ratios = [count / usual_tokens for count in tokens]
        if usual_squares <= 0:
            return ratios
        return [
            square / usual_squares if abs(ratio - 1.0) < SAME else ratio
            for ratio, square in zip(ratios, squares, strict=True)
        ]


class RoleWork:
    """Of one role: whether its work varies, and what it costs."""

    def __init__(self) -> None:
        self.left_out: list[tuple[Sequence[int], str]] = []
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
        times = times._replace(lines=of_one_source(times.lines))
        tokens = list(map(_tokens_of, times.lines))
        squares = list(map(_squares_of, times.lines))
        told = [count for count in tokens if count > 0]
        with_squares = min(squares) > 0 or 0 not in map(_squares_of, _telling(times.lines))
        is_varied = is_uneven(told) or (with_squares and is_uneven([s for s in squares if s > 0]))
        self._varied = LASTS if is_varied else max(self._varied - 1, 0)
        if not self.varies:
            return Company(times.ranks, times.lines, times.own, times.own, times.whole_us)
        if len(told) < len(tokens):
            silent = [r for r, count in zip(times.ranks, tokens, strict=True) if count <= 0]
            self.left_out.append((silent, "work varies, and no size of theirs is told"))
            times = _only(times, [place for place, count in enumerate(tokens) if count > 0])
        return self._scaled(times, with_squares, suspects) if len(told) > 1 else None

    def _scaled(
        self, times: OwnTimes, with_squares: bool, suspects: Collection[int]
    ) -> Company | None:
        tokens = list(map(_tokens_of, times.lines))
        squares = list(map(_squares_of, times.lines)) if with_squares else [0] * len(tokens)
        company = None
        if self._fit.is_ready:
            company = _scaled_by(self._fit.expected(tokens, squares), times)
        else:
            why = "work varies, and what it costs is not known yet"
            self.left_out.append((times.ranks, why))
        healthy = [place for place, rank in enumerate(times.ranks) if rank not in suspects]
        chosen = self._fit.choose(healthy)
        self._fit.take([(tokens[i], squares[i], times.compute[i]) for i in chosen])
        return company


def _telling(lines: Sequence[StepLine]) -> list[StepLine]:
    return [line for line in lines if line.tokens > 0]


def _only(times: OwnTimes, places: Sequence[int]) -> OwnTimes:
    return times._replace(
        ranks=[times.ranks[i] for i in places],
        own=[times.own[i] for i in places],
        compute=[times.compute[i] for i in places],
        lines=[times.lines[i] for i in places],
    )


def _scaled_by(expected: Sequence[float], times: OwnTimes) -> Company:
    usual = statistics.median(expected)
    scaled = [
        own + compute * (usual / e - 1.0)
        for own, compute, e in zip(times.own, times.compute, expected, strict=True)
    ]
    middle = max(statistics.median(scaled), 1.0)
    by_work = [(e - usual) / middle for e in expected]
    return Company(times.ranks, times.lines, times.own, scaled, times.whole_us, by_work)
