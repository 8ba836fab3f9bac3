"""What slows the job, in one shape: slow ranks, a slow link, a heavy stage, recompiling ranks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast_sidecar.performance.stragglers.causes import Named, advise
from holdfast_sidecar.performance.stragglers.placement import RankPlace
from holdfast_sidecar.performance.stragglers.step_model import StepModel
from holdfast_sidecar.records.steps import SlowCause, StepLine

MOST_CERTAIN: Mapping[int, float] = {2: 0.6, 3: 0.85, 4: 0.95}
"""Ranks of a role -> at most so sure. Of two, the slower may as well be the one that is right and
the other the one that got quicker; of three, one more odd one turns the median."""


PERSISTS_STEPS = 30
PERSISTS_S = 30.0
"""A link, a stage or a compiler that has been slow for both is not about to pass."""


@dataclass(frozen=True)
class SlownessTrouble:
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


def apportion(troubles: Sequence[SlownessTrouble], model: StepModel) -> list[float]:
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


def _slowest(trouble: SlownessTrouble, model: StepModel) -> float:
    own = model.own
    return max((own.get(rank, us) - us for rank, us in trouble.quick.items()), default=0.0)


# Ranks that compile again and again after the first steps, and what it costs them.
#
# Steps in which something was compiled are no ordinary ones: what ranks are compared by leaves them
# out, so it is counted here.

WARM_UP_STEPS = 16
"""A model is compiled in its first step, once more when sizes turn out to change, and once each
for what an optimizer or a schedule does differently in the first ones."""

WITHIN_STEPS = 32
TIMES = 3
"""So many blocks of steps among those had something compiled: a smaller last batch of an epoch
makes one, a change of precision or of a schedule another."""

FEWEST_BLOCKS = 4
"""Where a block is longer, so many of them are looked at."""

LEAST_SHARE = 0.05
"""Of the step time."""

KEPT = 16


@dataclass(frozen=True)
class Recompiling:
    """One rank that does."""

    rank: int
    share: float
    """Of its steps."""
    lost_us: float
    """Per step."""
    since_step: int
    times: int


@dataclass
class Recompilations:
    """Follows one attempt."""

    _first_step: int | None = None
    _seen: dict[int, deque[StepLine]] = field(default_factory=dict)

    def take(self, lines: Iterable[StepLine]) -> None:
        """Any lines, also such as were seen before."""
        some = list(lines)
        if self._first_step is None and some:
            # A new leader counts from what it saw first itself.
            self._first_step = min(line.step - line.stride for line in some)
        for line in some:
            if line.compiled:
                seen = self._seen.setdefault(line.rank, deque(maxlen=KEPT))
                if not seen or line.step > seen[-1].step:
                    seen.append(line)

    def judge(self, step: int, total_us: float) -> tuple[Recompiling, ...]:
        """Those who do now."""
        self._seen = {r: s for r, s in self._seen.items() if step - s[-1].step <= 2 * KEPT * 64}
        found = (self._of(rank, seen, step, total_us) for rank, seen in self._seen.items())
        return tuple(one for one in found if one is not None)

    def _of(
        self, rank: int, seen: deque[StepLine], step: int, total_us: float
    ) -> Recompiling | None:
        warm = (self._first_step or 0) + WARM_UP_STEPS
        span = max(WITHIN_STEPS, FEWEST_BLOCKS * seen[-1].stride)
        late = [one for one in seen if one.step - one.stride >= warm and one.step > step - span]
        times = sum(one.compiled for one in late)
        if len(late) < TIMES or times < TIMES:
            return None
        since = late[0].step - late[0].stride
        steps = max(1, step - since)
        lost_us = sum(one.lost * one.stride for one in late) / steps
        if lost_us < LEAST_SHARE * total_us:
            return None
        return Recompiling(rank, times / steps, lost_us, since + 1, times)


# The trouble of ranks that compile again and again: one for all of them, as it is the script's.

SURE = 0.9


def compilers(
    found: Sequence[Recompiling], places: Mapping[int, RankPlace], step: int, step_us: float
) -> list[SlownessTrouble]:
    """None or one."""
    known = [one for one in found if one.rank in places]
    if not known:
        return []
    worst = max(known, key=lambda one: one.lost_us)
    nodes = {places[one.rank].node for one in known}
    steps = step - worst.since_step + 1
    text = (
        f"rank {worst.rank} compiled something in {worst.times} of {steps} steps, which took "
        f"{worst.lost_us / 1e3:.1f} ms a step"
    )
    since = min(one.since_step for one in known)
    return [
        SlownessTrouble(
            ranks=tuple(sorted(one.rank for one in known)),
            node=nodes.pop() if len(nodes) == 1 else "",
            role="",
            named=Named(
                SlowCause.RECOMPILATION, SURE, (text,), advise(SlowCause.RECOMPILATION), "compiling"
            ),
            slowdown=worst.lost_us / max(1.0, step_us),
            confidence=SURE,
            since_step=since,
            is_persistent=lasts(since, step, step_us / 1e6),
            accounts=("compilers",),
            extra_us=worst.lost_us,
        )
    ]
