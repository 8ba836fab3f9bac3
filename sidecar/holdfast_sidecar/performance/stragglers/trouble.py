"""What slows the job, in one shape: slow ranks, a slow link, a heavy stage, recompiling ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast_sidecar.performance.stragglers.causes import Named
from holdfast_sidecar.performance.stragglers.step_model import StepModel

MOST_CERTAIN: Mapping[int, float] = {2: 0.6, 3: 0.85, 4: 0.95}
"""Ranks of a role -> at most so sure. Of two, the slower may as well be the one that is right and
the other the one that got quicker; of three, one more odd one turns the median."""


PERSISTS_STEPS = 30
PERSISTS_S = 30.0
"""A link, a stage or a compiler that has been slow for both is not about to pass."""


@dataclass(frozen=True)
class Trouble:
    """One of them, as one frame shows it."""

    ranks: tuple[int, ...]
    node: str
    role: str
    named: Named
    slowdown: float
    confidence: float
    since_step: int
    is_persistent: bool
    accounts: tuple[str, ...]
    """Under which its cost is added up: the same from frame to frame, whoever joins it."""
    quick: Mapping[int, float] = field(default_factory=dict)
    """rank -> its own time, microseconds of a step, if it were as quick as it should be."""
    costs_us: float = 0.0
    """Of each step, beside what ranks do themselves."""
    extra_us: float = 0.0
    """The same, beyond what was measured: in steps that are not ordinary ones."""
    known_gain: float | None = None
    """Where no single frame shows it."""
    owed_us: float = 0.0
    """What it cost before it was told; once."""
    group: str = ""
    blames_ranks: bool = True
    """Whether it is its ranks' own doing; else they merely show it."""

    @property
    def recurs(self) -> bool:
        """It is in some steps only: no single one shows what it costs."""
        return self.known_gain is not None

    def takes_us(self, model: StepModel) -> tuple[float, float] | None:
        """How long a step of the job takes, and would without it; None: the frame shows nothing of
        it, as its ranks told nothing."""
        if self.known_gain is not None:
            return model.total_us, model.total_us / (1.0 + self.known_gain)
        if not self.quick and not self.costs_us and not self.extra_us:
            return None
        without = model.without(self.quick) - self.costs_us
        return model.total_us + self.extra_us, max(0.0, without)


def lasts(since_step: int, step: int, step_s: float) -> bool:
    """Whether it has been so for long."""
    steps = step - since_step + 1
    return steps >= PERSISTS_STEPS and steps * step_s >= PERSISTS_S


def apportion(troubles: Sequence[Trouble], model: StepModel) -> list[float]:
    """What a step takes longer for each of them, microseconds.

    Two that are equally slow cost nothing each, as the other one is still there, but much together:
    what all of them cost is shared out by how slow each is.
    """
    quick: dict[int, float] = {}
    for trouble in troubles:
        for rank, own in trouble.quick.items():
            quick[rank] = min(own, quick.get(rank, own))
    together = max(0.0, model.total_us - model.without(quick))
    weights = [_slowest(trouble, model) for trouble in troubles]
    whole = sum(weights)
    return [
        (together * weight / whole if whole > 0 else 0.0) + trouble.costs_us + trouble.extra_us
        for trouble, weight in zip(troubles, weights, strict=True)
    ]


def _slowest(trouble: Trouble, model: StepModel) -> float:
    own = model.own
    return max((own.get(rank, us) - us for rank, us in trouble.quick.items()), default=0.0)
