"""What is remembered of one process group's exchanges: its usual one, and the newest."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast_sidecar.stragglers.imbalance import UNSURE, Told, added_us
from holdfast_sidecar.stragglers.noise import MAD_TO_SIGMA

LEARNT_FRAMES = 8
"""Frames after which a group's usual exchange is known well enough to be compared with."""

PAST_FRAMES = 32

NEW_FRAMES = 5

NEW_STEPS = 8
"""So many steps in a row, in two frames at least and five at most, are slower: what is over before
is a burst in the network that others' traffic makes all day, and a verdict comes in ten steps."""

TIMES = 1.3
"""So much slower than usual: rings share a card with other groups' traffic, and a fifth more or
less is what a busy network does by itself."""

DEVIATIONS = 6.0
"""Of its own past (MAD, as of a normal distribution), on each of those frames in a row: with a
thousand groups and heavy tails, chance does not do that."""

LINGERS = 0.5
"""What was slow stays so down to half of that."""

WORK_FOLLOWS = 0.5
"""Of what the exchange grew by, the own work of its members: then there is more to exchange."""

BARED = 0.5
"""Of what the exchange grew by, what its members' own work became shorter: smaller batches hide
less of it behind the computing, and the wire is as quick as it was."""

LOOKED_AT = 4
"""Every so manyth frame of the past shows how uneven its steps were."""

Newest = tuple[int, int, float, float, Mapping[int, float]]
"""After which step and up to which, the exchange, the work, the own times of all ranks (the same
mapping in all groups' histories)."""


@dataclass
class ExchangeHistory:
    """Of one group."""

    exchanges: deque[float] = field(default_factory=lambda: deque(maxlen=PAST_FRAMES))
    works: deque[float] = field(default_factory=lambda: deque(maxlen=PAST_FRAMES))
    samples: deque[Newest] = field(default_factory=lambda: deque(maxlen=PAST_FRAMES // LOOKED_AT))
    looked_at: tuple[Newest, ...] = ()
    """Of them, when the usual exchange was last worked out. What is usual of them is their lower
    quartile: when others come to be the usual ones, it changes after the exchange does."""
    newest: deque[Newest] = field(default_factory=lambda: deque(maxlen=NEW_FRAMES))
    """Of frames that are too new to be the past."""
    usual: float = 0.0
    deviation: float = 0.0
    work: float = 0.0
    aged: int = 0
    since_step: int | None = None

    def take(self, new: Newest, learns: bool) -> None:
        """One more frame. `learns`: whether what leaves the newest becomes the past."""
        if learns and self.since_step is None and len(self.newest) == NEW_FRAMES:
            self._age(self.newest[0])
        self.newest.append(new)

    def _age(self, old: Newest) -> None:
        self.exchanges.append(old[2])
        self.works.append(old[3])
        if self.aged % LOOKED_AT == 0:
            self.samples.append(old)
        self.aged += 1
        if self.aged <= LEARNT_FRAMES or self.aged % LEARNT_FRAMES == 0:
            self.usual = statistics.median(self.exchanges)
            self.work = statistics.median(self.works)
            self.looked_at = tuple(self.samples)
            self.deviation = MAD_TO_SIGMA * statistics.median(
                abs(one - self.usual) for one in self.exchanges
            )

    @property
    def is_known(self) -> bool:
        """Whether there is a past to compare with."""
        return len(self.exchanges) >= LEARNT_FRAMES

    def least(self, least_us: float) -> float:
        """What a slow one takes at least; `least_us`: what it must cost."""
        beyond = max((TIMES - 1) * self.usual, least_us, DEVIATIONS * self.deviation)
        return self.usual + (beyond if self.since_step is None else LINGERS * beyond)

    def stands_out(self, latest: Sequence[Newest], least: float) -> bool:
        """Whether all of these do, and not for more work."""
        if not all(one[2] > least for one in latest):
            return False
        if not self.is_known:
            return True
        exchange = statistics.median(one[2] for one in latest)
        work = statistics.median(one[3] for one in latest)
        grown, more_work = exchange / max(1.0, self.usual) - 1, work / max(1.0, self.work) - 1
        # The work is that of two members.
        is_bared = (self.work - work) / 2 > BARED * (exchange - self.usual)
        return grown <= 0 or (more_work < WORK_FOLLOWS * grown and not is_bared)

    def uneven_us(self, latest: Sequence[Newest], members: Sequence[int], size: int) -> float:
        """What these have in them at most because their steps are more uneven than they were.

        Rarely asked, and only then looked up: in thousands of groups it would have its price.
        """
        past = sorted(added_us([_told(one)], members, size) for one in self.looked_at)
        usual = past[len(past) // 4] if past else 0.0
        now = max(
            added_us(map(_told, ones), members, size, UNSURE) for ones in (self.newest, latest)
        )
        return max(0.0, now - usual)

    def latest(self) -> list[Newest]:
        """The newest frames, as many as make `NEW_STEPS`; empty while there are too few."""
        chosen: list[Newest] = []
        for one in reversed(self.newest):
            chosen.append(one)
            if len(chosen) >= 2 and chosen[0][1] - chosen[-1][0] >= NEW_STEPS:
                return chosen
        return chosen if len(chosen) == NEW_FRAMES else []


def _told(one: Newest) -> Told:
    after, step, _, _, own_us = one
    return step - after, own_us
