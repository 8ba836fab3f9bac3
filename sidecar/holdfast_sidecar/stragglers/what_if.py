"""How much faster the job would be without one rank's slowness, a stage's, a cause, uneven work.

Streaming: each frame is modelled as it comes (`step_model`), with some ranks' own time replaced.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast_sidecar.records.slowness import Cause, WhatIf
from holdfast_sidecar.stragglers.even_work import EvenWork
from holdfast_sidecar.stragglers.exchanges import SlowExchange
from holdfast_sidecar.stragglers.frame import Excess, Frame
from holdfast_sidecar.stragglers.place import Place
from holdfast_sidecar.stragglers.signals import FORGETS
from holdfast_sidecar.stragglers.step_model import Layout, StepModel, lay_out, model

MOST_RANKS = 8
"""Whose absence is worked out one by one, the slowest first: the ninth hides behind the eighth."""

LOOKED_AT_ALWAYS = 512
"""Ranks whose work is looked at in each frame; of eight times as many, in every eighth."""

LEAST_GAIN = 0.005
"""Less is not worth a line."""

Key = tuple[str, str]
"""kind, what"""


@dataclass
class _Account:
    """Of one what-if: means of the latest steps, and the sum over all."""

    total_us: float = 0.0
    without_us: float = 0.0
    lost_s: float = 0.0

    def take(self, total_us: float, without_us: float, steps: int) -> None:
        kept = FORGETS**steps if self.total_us else 0.0
        self.total_us = kept * self.total_us + (1 - kept) * total_us
        self.without_us = kept * self.without_us + (1 - kept) * without_us
        self.lost_s += max(0.0, total_us - without_us) * steps / 1e6

    @property
    def gain(self) -> float:
        return self.total_us / self.without_us - 1 if self.without_us > 0 else 0.0


@dataclass
class WhatIfs:
    """Follows one attempt."""

    model: StepModel | None = None
    """Of the newest frame."""
    _places: Mapping[int, Place] | None = None
    _layout: Layout | None = None
    _accounts: dict[Key, _Account] = field(default_factory=dict)
    work: EvenWork = field(default_factory=EvenWork)
    _even: float | None = None
    _turn: int = 0

    def follow(
        self,
        frame: Frame,
        places: Mapping[int, Place],
        excesses: Sequence[Excess],
        causes: Mapping[int, Cause] | None = None,
        exchanges: Sequence[SlowExchange] = (),
    ) -> tuple[WhatIf, ...]:
        """What is worth telling now, the largest gain first."""
        one = self.model = self.read(frame, places)
        steps = frame.step - frame.after_step
        slowest = sorted(excesses, key=lambda e: e.peers_us - e.own_us)[:MOST_RANKS]
        without = {("rank", f"rank {e.rank}"): one.without(as_its_peers(one, e)) for e in slowest}
        ranks = {e.rank for e in slowest}
        without |= _by_cause(one, excesses, causes or {}, exchanges, ranks)
        without |= self._by_stage(one)
        share = self._even_share(frame, one, {excess.rank for excess in excesses})
        if share is not None:
            without["work", "even work"] = share * one.total_us
        self._accounts = {key: self._accounts.get(key, _Account()) for key in without}
        for key, without_us in without.items():
            self._accounts[key].take(one.total_us, without_us, steps)
        told = [
            WhatIf(what, kind, round(account.gain, 4), round(account.lost_s, 3))
            for (kind, what), account in self._accounts.items()
            if account.gain >= LEAST_GAIN
        ]
        return tuple(sorted(told, key=lambda one: -one.gain))

    def _even_share(self, frame: Frame, one: StepModel, slow: Collection[int]) -> float | None:
        """What a step would take with even work, as a part of what it takes; of thousands of ranks
        it is looked at now and then, and holds until the next time."""
        assert self._places is not None
        self._turn -= 1
        if self._turn <= 0:
            self._turn = 1 + len(frame.lines) // LOOKED_AT_ALWAYS
            even = self.work.follow(frame, self._places, slow)
            self._even = one.without(even) / one.total_us if even and one.total_us > 0 else None
        return self._even

    def read(self, frame: Frame, places: Mapping[int, Place]) -> StepModel:
        """The frame's model; the layout is worked out again when places have changed."""
        if self._layout is None or (places is not self._places and places != self._places):
            self._places, self._layout = dict(places), lay_out(places)
        return model(frame, self._layout)

    def _by_stage(self, one: StepModel) -> dict[Key, float]:
        """The slowest stage as quick as the mean of all: its work is not gone, but shared out."""
        layout = one.layout
        if layout.stages < 2:
            return {}
        times: dict[int, list[float]] = {}
        for unit, ranks in enumerate(layout.members):
            own = [one.own[rank] for rank in ranks if rank in one.own]
            if own:
                times.setdefault(layout.stage[unit], []).append(max(own))
        middles = {stage: statistics.median(of_it) for stage, of_it in times.items()}
        if len(middles) < 2:
            return {}
        slowest = max(middles, key=lambda stage: middles[stage])
        ratio = statistics.fmean(middles.values()) / max(1.0, middles[slowest])
        even = {
            rank: one.own[rank] * ratio
            for unit, ranks in enumerate(layout.members)
            if layout.stage[unit] == slowest
            for rank in ranks
            if rank in one.own
        }
        return {("stage", f"stage {slowest}"): one.without(even)}


def as_its_peers(one: StepModel, excess: Excess) -> dict[int, float]:
    """Its own time if it were as quick as its peers with their work."""
    if excess.rank not in one.own or excess.own_us <= 0:
        return {}
    usual = excess.peers_us / max(0.1, 1 + excess.by_work)
    return {excess.rank: one.own[excess.rank] * min(1.0, usual / excess.own_us)}


def _by_cause(
    one: StepModel,
    excesses: Sequence[Excess],
    causes: Mapping[int, Cause],
    exchanges: Sequence[SlowExchange],
    told: set[int],
) -> dict[Key, float]:
    by_cause: dict[Cause, dict[int, float]] = {}
    for excess in excesses:
        cause = causes.get(excess.rank)
        if cause is not None:
            by_cause.setdefault(cause, {}).update(as_its_peers(one, excess))
    # A cause of one rank is told as that rank.
    found = {
        ("cause", cause.value): one.without(own)
        for cause, own in by_cause.items()
        if len(own) > 1 or not told.issuperset(own)
    }
    costs = max((exchange.costs_us for exchange in exchanges), default=0.0)
    if costs > 0:
        key = ("cause", Cause.LINK.value)
        found[key] = max(0.0, found.get(key, one.total_us) - costs)
    return found
