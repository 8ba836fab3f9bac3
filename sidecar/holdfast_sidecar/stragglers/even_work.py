"""How long each rank would take with the mean of its role's work: by what work costs (`work`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast_sidecar.records.steps import StepLine
from holdfast_sidecar.stragglers.frame import Frame
from holdfast_sidecar.stragglers.place import Place
from holdfast_sidecar.stragglers.work import WorkFit, is_uneven


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
            if line.tokens > 0 and rank in places:
                by_role.setdefault(places[rank].role, []).append(line)
        if len(self._fits) > len(by_role):
            self._fits = {role: fit for role, fit in self._fits.items() if role in by_role}
        found: dict[int, float] = {}
        for role, lines in by_role.items():
            if len(lines) > 1 and _varies(lines):
                found.update(self._even_out(role, lines, slow))
        return found

    def _even_out(
        self, role: str, lines: Sequence[StepLine], slow: Collection[int]
    ) -> dict[int, float]:
        fit = self._fits.setdefault(role, WorkFit())
        squares = all(line.squares > 0 for line in lines)
        work = [(float(line.tokens), float(line.squares) if squares else 0.0) for line in lines]
        found: dict[int, float] = {}
        if fit.is_ready:
            expected = fit.expected([tokens for tokens, _ in work], [square for _, square in work])
            mean = sum(expected) / len(expected)
            found = {
                line.rank: line.own_us + _compute_us(line) * (mean / max(1.0, one) - 1.0)
                for line, one in zip(lines, expected, strict=True)
            }
        rows = zip(lines, work, strict=True)
        fit.take([(*w, float(_compute_us(ln))) for ln, w in rows if ln.rank not in slow])
        return found


def _compute_us(line: StepLine) -> int:
    """What grows with the work."""
    own_backward = line.backward if line.waits_seen else 0
    return line.transfer + line.forward + own_backward + line.optimizer


def _varies(lines: Sequence[StepLine]) -> bool:
    squares = [line.squares for line in lines if line.squares > 0]
    return is_uneven([line.tokens for line in lines]) or is_uneven(squares)
