"""A bounded memory of ranks x time: who took longer for its own work than its peers, and when.

A column is as long as the others; when there is no room for another, two and two become one, until
a column lasts for LAST_S, and the oldest goes. Two bytes a cell: 246 kB at most.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from holdfast_sidecar.export.live.view import COLUMNS, NOTHING, RANKS, RATIOS, Heat, level_of

FIRST_S = 1.0
"""A young job's column: a rank is heard of three times a second, and its steps may take as long."""

LAST_S = 32.0
"""...and an old one's: all columns are an hour then, as long as a page on a second screen is of
use; what was before stands in Prometheus."""

FEEDS = 4
"""Of a column: enough for a mean, and to see a phase that takes a quarter of it."""

_NONE = bytes([NOTHING])


class RankNow(NamedTuple):
    """What a rank told just now."""

    rank: int
    own_s: float
    """Its own work in a step; 0: not known."""
    phase: int = -1
    """Its number, from 0 on; -1: not known."""
    role: str = ""
    """It is compared with those of the same role."""


@dataclass(frozen=True)
class HeatColumn:
    """One that is over, or is told as far as it has come. Rows from rank 0 on."""

    end_unix_s: float
    step: int | None
    levels: bytes
    phases: bytes
    """From 1 on; NOTHING where none was told."""

    @property
    def size_bytes(self) -> int:
        """What its cells take."""
        return len(self.levels) + len(self.phases)


@dataclass
class Opened:
    """The column under way: sums of what was told of each rank."""

    end_unix_s: float
    step: int | None = None
    sums: dict[int, float] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    roles: dict[int, str] = field(default_factory=dict)
    phases: dict[int, int] = field(default_factory=dict)

    @property
    def has_heard(self) -> bool:
        """Whether anybody told anything in it."""
        return bool(self.phases)

    def hear(self, told: Iterable[RankNow], step: int | None) -> None:
        """Add what all ranks told just now."""
        sums, counts, roles, phases = self.sums, self.counts, self.roles, self.phases
        self.step = step if step is not None else self.step
        for rank, own_s, phase, role in told:
            phases[rank] = phase + 1
            if own_s > 0:
                sums[rank] = sums.get(rank, 0.0) + own_s
                counts[rank] = counts.get(rank, 0) + 1
                roles[rank] = role

    def ratios(self) -> dict[int, float]:
        """rank -> the mean of its own time against the median of its role's means."""
        counts, roles = self.counts, self.roles
        means = {rank: total / counts[rank] for rank, total in self.sums.items()}
        by_role: dict[str, list[float]] = {}
        for rank, mean in means.items():
            by_role.setdefault(roles[rank], []).append(mean)
        middle = {role: statistics.median(told) for role, told in by_role.items()}
        return {rank: mean / middle[roles[rank]] for rank, mean in means.items()}

    def close(self, rows: int, per_row: int) -> HeatColumn:
        """The column as it stands, the slowest of each row's ranks in it."""
        levels, phases = bytearray(rows), bytearray(rows)
        for rank, phase in self.phases.items():
            if 0 <= rank < rows * per_row:
                phases[rank // per_row] = phases[rank // per_row] or phase
        for rank, ratio in self.ratios().items():
            row = rank // per_row
            if 0 <= row < rows and (level := level_of(ratio)) > levels[row]:
                levels[row], phases[row] = level, self.phases[rank]
        return HeatColumn(self.end_unix_s, self.step, bytes(levels), bytes(phases))


@dataclass
class HeatMemory:
    """The columns so far. Not for several threads at once."""

    width_s: float = FIRST_S
    columns: list[HeatColumn] = field(default_factory=list)
    opened: Opened | None = None
    per_row: int = 1
    rows: int = 0
    fed_unix_s: float = 0.0
    """When it was fed last."""

    @property
    def size_bytes(self) -> int:
        """What the cells of all columns take."""
        return sum(column.size_bytes for column in self.columns)

    def wants(self, now_unix_s: float) -> bool:
        """Whether it is time to hear more: each column wants four times at most, and once a second.

        What a rank tells is the median of its latest steps, and asking a thousand of them takes
        two milliseconds.
        """
        opened, since_s = self.opened, now_unix_s - self.fed_unix_s
        if opened is None or now_unix_s >= opened.end_unix_s or since_s < 0:
            return True
        return not opened.has_heard or since_s >= max(FIRST_S, self.width_s / FEEDS)

    def follow(
        self, now_unix_s: float, told: Iterable[RankNow], world_size: int, step: int | None
    ) -> None:
        """Take in what the ranks told just now. world_size: how many there are in all."""
        self.fed_unix_s = now_unix_s
        self._make_room(world_size)
        opened = self._column_of(now_unix_s)
        opened.hear(told, step)

    def copied(self) -> HeatMemory:
        """As it is now, for another thread to read from."""
        opened = self.opened
        if opened is not None:
            opened = Opened(
                opened.end_unix_s,
                opened.step,
                dict(opened.sums),
                dict(opened.counts),
                dict(opened.roles),
                dict(opened.phases),
            )
        return HeatMemory(self.width_s, list(self.columns), opened, self.per_row, self.rows)

    def heat(self, phase_names: list[str]) -> Heat:
        """The map of all ranks that ever told anything, with the column under way."""
        columns = list(self.columns)
        if self.opened is not None and self.opened.has_heard:
            columns.append(self.opened.close(self.rows, self.per_row))
        columns = columns[-COLUMNS:]
        levels = _rows([column.levels for column in columns], self.rows)
        phases = _rows([column.phases for column in columns], self.rows)
        told = [row for row in range(self.rows) if any(levels[row]) or any(phases[row])]
        return Heat(
            [column.end_unix_s for column in columns],
            [column.step for column in columns],
            {row * self.per_row: [RATIOS[one] for one in levels[row]] for row in told},
            {row * self.per_row: [one - 1 if one else None for one in phases[row]] for row in told},
            phase_names,
            self.per_row,
        )

    def _make_room(self, world_size: int) -> None:
        per_row = max(1, math.ceil(world_size / RANKS))
        if per_row != self.per_row:
            self.columns, self.opened, self.rows, self.per_row = [], None, 0, per_row
        self.rows = max(self.rows, math.ceil(world_size / per_row))

    def _column_of(self, now_unix_s: float) -> Opened:
        """The column of this moment, opened where it is another than the last."""
        opened = self.opened
        if opened is not None and self._is_far(opened, now_unix_s):
            self.columns, opened = [], None
        while opened is not None and now_unix_s >= opened.end_unix_s:
            self._keep(opened.close(self.rows, self.per_row))
            # Two and two may have become one: ends stay multiples of the width, and grow.
            opened = Opened(self._end_of(self.columns[-1].end_unix_s))
        self.opened = opened or Opened(self._end_of(now_unix_s))
        return self.opened

    def _is_far(self, opened: Opened, now_unix_s: float) -> bool:
        """A clock that was set, or so long a silence that nothing of before would be left."""
        ahead_s = now_unix_s - opened.end_unix_s
        return ahead_s > COLUMNS * self.width_s or ahead_s < -2 * self.width_s

    def _end_of(self, now_unix_s: float) -> float:
        return (math.floor(now_unix_s / self.width_s) + 1) * self.width_s

    def _keep(self, column: HeatColumn) -> None:
        self.columns.append(column)
        if len(self.columns) < COLUMNS:
            return
        if self.width_s < LAST_S:
            self.width_s *= 2
            self.columns = _halved(self.columns, self.width_s)
        else:
            del self.columns[0]


def _halved(columns: list[HeatColumn], width_s: float) -> list[HeatColumn]:
    """Those that fall into the same column of twice the width become one."""
    kept: list[HeatColumn] = []
    for column in columns:
        end_unix_s = math.ceil(column.end_unix_s / width_s) * width_s
        if kept and kept[-1].end_unix_s == end_unix_s:
            kept[-1] = _merged(end_unix_s, kept[-1], column)
        else:
            kept.append(replace(column, end_unix_s=end_unix_s))
    return kept


def _merged(end_unix_s: float, one: HeatColumn, later: HeatColumn) -> HeatColumn:
    """The mean of what was told; the phase and the step of the later, where it told one."""
    rows = len(later.levels)
    levels = zip(one.levels.ljust(rows, _NONE), later.levels, strict=True)
    phases = zip(one.phases.ljust(rows, _NONE), later.phases, strict=True)
    return HeatColumn(
        end_unix_s,
        one.step if later.step is None else later.step,
        bytes([(a + b + 1) // 2 if a and b else a or b for a, b in levels]),
        bytes([b or a for a, b in phases]),
    )


def _rows(columns: list[bytes], rows: int) -> list[tuple[int, ...]]:
    """Of each row what stands in the columns; a job that grew had fewer rows before."""
    if not columns:
        return [() for _ in range(rows)]
    return list(zip(*(column.ljust(rows, _NONE) for column in columns), strict=True))
