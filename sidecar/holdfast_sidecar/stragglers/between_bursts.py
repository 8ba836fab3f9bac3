"""How ranks that may be told for their long steps fare between them. Who is slow there as well is
slow all the time: the detector's to judge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from holdfast_sidecar.records.steps import StepLine
from holdfast_sidecar.stragglers.even_work import Yardstick
from holdfast_sidecar.stragglers.recurring import COSTS

FRAMES = 16
"""Without a burst, that make a mean."""


@dataclass
class _Fares:
    """Of frames without a burst: a rank's own time beyond its peers', as a part of it."""

    role: str
    beyond: float = 0.0
    _frames: int = 0

    def take(self, beyond: float) -> None:
        self._frames = min(FRAMES, self._frames + 1)
        self.beyond += (beyond - self.beyond) / self._frames


@dataclass
class BetweenBursts:
    """Of those that are watched."""

    _ranks: dict[int, _Fares] = field(default_factory=dict)

    def watch(self, rank: int, role: str) -> None:
        """This one too, which is of that role."""
        if rank in self._ranks:
            self._ranks[rank].role = role
        else:
            self._ranks[rank] = _Fares(role)

    def watches(self, rank: int) -> bool:
        """Whether it is one of them."""
        return rank in self._ranks

    def follow(
        self,
        role: str,
        lines: Mapping[int, StepLine],
        yardstick: Yardstick,
        usual_us: float,
        limit_us: float,
    ) -> dict[int, float]:
        """One more frame of this role; rank -> what it took of those that are late again."""
        late = {}
        for rank, fares in self._ranks.items():
            if fares.role == role and rank in lines:
                own = yardstick(lines[rank])
                if own > limit_us:
                    late[rank] = own
                else:
                    fares.take(own / usual_us - 1.0)
        return late

    def is_slow(self, rank: int) -> bool:
        """Whether it is slow then, too, as far as it is known."""
        fares = self._ranks.get(rank)
        return fares is not None and fares.beyond > COSTS

    def forget(self, is_over: Callable[[int], bool]) -> None:
        """Watch those no more."""
        self._ranks = {rank: one for rank, one in self._ranks.items() if not is_over(rank)}
