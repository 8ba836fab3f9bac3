"""Ranks that are slow in some steps only, again and again: every fourth batch comes late, every
fifth step has a garbage collection in it. The detector rightly passes over single slow steps; that
they come back is looked for here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast_sidecar.stragglers.census import Census
from holdfast_sidecar.stragglers.even_work import EvenWork
from holdfast_sidecar.stragglers.frame import Frame
from holdfast_sidecar.stragglers.place import Place
from holdfast_sidecar.stragglers.signals import SAMPLE, Signals, middle, read
from holdfast_sidecar.stragglers.step_model import StepModel

WITHIN_STEPS = 64
TIMES = 6
"""Frames in which it is slow, among so many steps: a healthy rank has a hiccup in one step of five
hundred or so, and six within sixty by chance once in a hundred million."""

LEAST = 0.2
DEVIATIONS = 6.0
"""Beyond the middle of its role, in one frame: more than the tails of healthy ranks reach often."""

COSTS = 0.05
"""Of all steps' own time, in the mean: as for who is slow in each of them."""

MOST_BESIDE = 0.25
"""Of its own bursts, what the middle rank of its role has: where all have them, it is what they do,
or work of a size that nobody tells."""

FEWEST = 4
"""Ranks of a role: of fewer the middle one says little of a single frame."""


@dataclass(frozen=True)
class Burst:
    """One frame in which a rank was slow."""

    step: int
    steps: int
    own: Signals
    peers: Signals
    own_us: float
    peers_us: float
    saved_us: float
    """What the job's step would have been shorter without."""
    usual_us: float
    """What it would have taken."""


@dataclass(frozen=True)
class Recurring:
    """A rank that is slow again and again; means over its bursts, but for `slowdown`."""

    rank: int
    role: str
    slowdown: float
    """Over all steps."""
    since_step: int
    seen_steps: int
    times: int
    own: Signals
    peers: Signals
    own_us: float
    peers_us: float
    costs_us: float
    """Of each step of the job, over all steps."""
    usual_us: float
    """What a step of the job takes otherwise."""


@dataclass
class Bursts:
    """Follows one attempt."""

    _seen: dict[int, deque[Burst]] = field(default_factory=dict)
    _census: Census = field(default_factory=Census)

    def follow(
        self,
        frame: Frame,
        places: Mapping[int, Place],
        model: StepModel,
        work: EvenWork,
        slow: Collection[int],
    ) -> tuple[Recurring, ...]:
        """Those who are slow again and again. `slow`: ranks that are so in each step, and told."""
        self._census.read(places)
        is_complete = model.own.keys() >= places.keys()
        for role, ranks in self._census.by_role.items():
            told = ranks if is_complete else [rank for rank in ranks if rank in model.own]
            if len(told) >= FEWEST:
                self._look(role, told, frame, model, work)
        self._forget(frame, slow)
        found = (self._judge(rank, seen, frame, places) for rank, seen in self._seen.items())
        return tuple(one for one in found if one is not None)

    def _look(
        self, role: str, ranks: Sequence[int], frame: Frame, model: StepModel, work: EvenWork
    ) -> None:
        own, lines = model.own, frame.lines
        some = [lines[rank] for rank in ranks[:: max(1, len(ranks) // SAMPLE)]]
        yardstick = work.yardstick(role, some)
        if yardstick is None:
            return
        usual, limit = _usual(list(map(yardstick, some)))
        if max(map(own.__getitem__, ranks)) <= limit:
            return
        suspects = [rank for rank in ranks if own[rank] > limit]
        late = [rank for rank in suspects if yardstick(lines[rank]) > limit]
        # Where a quarter and more is late at once, it is nobody's burst.
        if not late or 4 * len(late) > len(ranks):
            return
        peers = middle([line for line in some if line.rank not in late])
        if peers is None:
            return
        for rank in late:
            mine = yardstick(lines[rank])
            saved_us = max(0.0, model.total_us - model.without({rank: own[rank] - mine + usual}))
            burst = Burst(
                frame.step,
                frame.step - frame.after_step,
                read(lines[rank]),
                peers,
                mine,
                usual,
                saved_us,
                model.total_us - saved_us,
            )
            self._seen.setdefault(rank, deque(maxlen=WITHIN_STEPS)).append(burst)

    def _forget(self, frame: Frame, slow: Collection[int]) -> None:
        oldest = frame.step - WITHIN_STEPS
        for rank in list(self._seen):
            seen = self._seen[rank]
            while seen and seen[0].step <= oldest:
                seen.popleft()
            if not seen or rank in slow:
                del self._seen[rank]

    def _judge(
        self, rank: int, seen: Sequence[Burst], frame: Frame, places: Mapping[int, Place]
    ) -> Recurring | None:
        if len(seen) < TIMES or rank not in places:
            return None
        role = places[rank].role
        # Bursts come at any distance: the last one ends, on average, half of that before the next.
        since = seen[0].step - seen[0].steps
        apart = (seen[-1].step - seen[0].step) / (len(seen) - 1)
        if frame.step - seen[-1].step > OVERDUE * apart:
            return None
        steps = max(1.0, seen[-1].step - since + apart - seen[0].steps)
        lost_us = sum((one.own_us - one.peers_us) * one.steps for one in seen)
        peers_us = _mean(seen, "peers_us")
        slowdown = lost_us / steps / max(1.0, peers_us)
        if slowdown < COSTS or self._is_usual(rank, role, len(seen)):
            return None
        return Recurring(
            rank=rank,
            role=role,
            slowdown=slowdown,
            since_step=since + 1,
            seen_steps=round(steps),
            times=len(seen),
            own=_mean_signals([one.own for one in seen]),
            peers=_mean_signals([one.peers for one in seen]),
            own_us=_mean(seen, "own_us"),
            peers_us=peers_us,
            costs_us=sum(one.saved_us * one.steps for one in seen) / steps,
            usual_us=_mean(seen, "usual_us"),
        )

    def _is_usual(self, rank: int, role: str, times: int) -> bool:
        """Whether the middle rank of its role has as many."""
        others = (other for other in self._census.by_role.get(role, ()) if other != rank)
        counts = sorted(len(self._seen.get(other, ())) for other in others)
        return bool(counts) and counts[len(counts) // 2] > MOST_BESIDE * times


OVERDUE = 3.0
"""Times the usual distance between two bursts: then they are over."""


def _usual(own: list[float]) -> tuple[float, float]:
    """The middle one, and beyond what one of them stands out."""
    own.sort()
    usual = own[len(own) // 2]
    # The quartiles of a normal distribution lie 1.35 deviations apart.
    sigma = (own[3 * len(own) // 4] - own[len(own) // 4]) / 1.35
    return usual, usual + max(LEAST * usual, DEVIATIONS * sigma)


def _mean(seen: Sequence[Burst], name: str) -> float:
    values: list[float] = [getattr(one, name) for one in seen]
    return sum(values) / len(values)


def _mean_signals(some: Sequence[Signals]) -> Signals:
    return Signals(*(sum(column) / len(some) for column in zip(*some, strict=True)))
