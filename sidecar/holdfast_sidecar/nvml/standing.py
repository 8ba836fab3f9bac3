"""Where one signal stands with one GPU: which way it is asked, when again, and what refused it."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast_sidecar.nvml import codes
from holdfast_sidecar.nvml.fields import Answer
from holdfast_sidecar.nvml.refusals import REFUSED_S
from holdfast_sidecar.nvml.signals import Row, Way


@dataclass
class Standing:
    """One signal's way through the ways that its row has."""

    row: Row
    number: int = 0
    due_s: float = float("-inf")
    refusals: list[str] = field(default_factory=list)
    """Why each way so far did not tell it."""
    answer: Answer | None = None
    """Of a field, as it was believed last: the batch hands out the same one while it stays so."""
    counts: dict[int, float] = field(default_factory=dict)
    """By link, what it counted last: a link that falls silent must not make the sum fall back."""

    @property
    def way(self) -> Way:
        """How it is asked now."""
        return self.row.ways[self.number]

    def told(self, now_s: float) -> None:
        """It was told: the same way again, in its rhythm."""
        if self.refusals:
            self.refusals.clear()
        self.due_s = now_s + self.row.every_s

    def refused(self, code: int, now_s: float) -> None:
        """It was not: another way, or the same one when its time has come."""
        self.answer = None
        if code not in codes.SETTLED:
            self._rest(min(self.row.every_s, REFUSED_S), now_s)
        elif self.number + 1 < len(self.row.ways):
            self.number += 1
        else:
            self.number = 0
            self._rest(REFUSED_S, now_s)

    def _rest(self, seconds: float, now_s: float) -> None:
        self.refusals = []
        self.due_s = now_s + seconds
