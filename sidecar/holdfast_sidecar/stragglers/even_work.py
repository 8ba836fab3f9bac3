"""How long each rank would take with the mean of its role's work: by what work costs (`work`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from statistics import fmean

from holdfast_sidecar.records.steps import StepLine
from holdfast_sidecar.stragglers.frame import Frame
from holdfast_sidecar.stragglers.own_time import PARTS
from holdfast_sidecar.stragglers.place import Place
from holdfast_sidecar.stragglers.work import WorkFit, is_uneven, of_one_source

Yardstick = Callable[[StepLine], float]
"""A line's own time, had it had as much work as the others of its role."""


@dataclass
class EvenWork:
    """Follows all roles in which work varies."""

    _fits: dict[str, WorkFit] = field(default_factory=dict)

    def follow(
        self, frame: Frame, places: Mapping[int, Place], slow: Collection[int]
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
