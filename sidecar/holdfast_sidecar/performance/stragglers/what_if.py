"""How much faster the job would be without one rank's slowness, a stage's, a cause, uneven work.

Streaming: each frame is modelled as it comes (`step_model`), with some ranks' own time replaced.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast_sidecar.performance.stragglers.exchanges import SlowExchange
from holdfast_sidecar.performance.stragglers.frame import Excess, StepFrame
from holdfast_sidecar.performance.stragglers.groups import ParallelLayout, lay_out
from holdfast_sidecar.performance.stragglers.placement import RankPlace
from holdfast_sidecar.performance.stragglers.step_model import Filling, StepModel, model
from holdfast_sidecar.performance.stragglers.trouble import SlownessTrouble
from holdfast_sidecar.performance.stragglers.workload import EvenWork
from holdfast_sidecar.records.steps import SlowCause, WhatIf

MOST_RANKS = 8
"""Whose absence is worked out one by one, the slowest first: the ninth hides behind the eighth."""

LOOKED_AT_ALWAYS = 512
"""Ranks whose work is looked at in each frame; of eight times as many, in every eighth."""

LEAST_GAIN = 0.005
"""Less is not worth a line."""

FORGETS = 0.95
"""Of what was known, kept per step: some twenty steps make the mean, as a single one has its noise
and gains are what people decide by."""

MOST_OF_FRAME = 0.2
"""Of the mean, however many steps a frame has."""

Key = tuple[str, str]
"""kind, what"""

Takes = tuple[float, float]
"""Microseconds of a step: as it is, and as it would be."""

UNTOLD = "trouble"
"""The kind of those that are told among the slow alone."""


@dataclass
class _Account:
    """Of one what-if: means of the latest steps, and the sum over all."""

    total_us: float = 0.0
    without_us: float = 0.0
    lost_s: float = 0.0

    def take(self, takes: Takes, steps: int) -> None:
        share = min(1 - FORGETS**steps, MOST_OF_FRAME)
        total_us, without_us = takes
        # Both from nothing: of their ratio nothing is left of that.
        self.total_us += share * (total_us - self.total_us)
        self.without_us += share * (without_us - self.without_us)
        self.lost_s += max(0.0, total_us - without_us) * steps / 1e6

    @property
    def gain(self) -> float:
        return self.total_us / self.without_us - 1 if self.without_us > 0 else 0.0


@dataclass
class WhatIfs:
    """Follows one attempt. Whoever says how much faster the job would be asks here: what is told of
    a slow rank and what would be without it are the same number."""

    _places: Mapping[int, RankPlace] | None = None
    _layout: ParallelLayout | None = None
    _accounts: dict[Key, _Account] = field(default_factory=dict)
    _filling: Filling = field(default_factory=Filling)
    work: EvenWork = field(default_factory=EvenWork)
    _shares: dict[Key, float] = field(default_factory=dict)
    _turn: int = 0

    def follow(
        self,
        frame: StepFrame,
        one: StepModel,
        excesses: Sequence[Excess],
        causes: Mapping[int, SlowCause] | None = None,
        exchanges: Sequence[SlowExchange] = (),
        troubles: Sequence[SlownessTrouble] = (),
    ) -> tuple[WhatIf, ...]:
        """What is worth telling after one more frame, of which `read` made that model; the largest
        gain first."""
        slowest = sorted(excesses, key=lambda e: e.peers_us - e.own_us)[:MOST_RANKS]
        ranks = {e.rank for e in slowest}
        without = {
            ("rank", f"rank {e.rank}"): one.without(own)
            for e in slowest
            if (own := as_its_peers(one, e))
        }
        without |= _by_cause(one, excesses, causes or {}, exchanges, ranks)
        shares = self._by_many(frame, one, {excess.rank for excess in excesses})
        without |= {key: share * one.total_us for key, share in shares.items()}
        takes = {key: (one.total_us, us) for key, us in without.items()}
        takes |= {key_of(it): us for it in troubles if (us := it.takes_us(one)) is not None}
        kept = {*takes, *(("rank", f"rank {rank}") for rank in ranks), *map(key_of, troubles)}
        self._accounts = {key: self._accounts.get(key, _Account()) for key in sorted(kept)}
        for key, us in takes.items():
            self._accounts[key].take(us, frame.step - frame.after_step)
        told = [
            WhatIf(what, kind, round(account.gain, 4), round(account.lost_s, 3))
            for (kind, what), account in self._accounts.items()
            if account.gain >= LEAST_GAIN and kind != UNTOLD
        ]
        return tuple(sorted(told, key=lambda one: -one.gain))

    def gain(self, trouble: SlownessTrouble) -> float:
        """So much faster the job would be without it, as a part of one: over the newest steps."""
        account = self._accounts.get(key_of(trouble))
        return 0.0 if account is None else max(0.0, account.gain)

    def _by_many(
        self, frame: StepFrame, one: StepModel, slow: Collection[int]
    ) -> Mapping[Key, float]:
        """What a step would take if all ranks had other work, even work or that of even stages, as
        a part of what it takes; of thousands of ranks it is looked at now and then, and holds until
        the next time."""
        assert self._places is not None
        self._turn -= 1
        if self._turn <= 0:
            self._turn = 1 + len(frame.lines) // LOOKED_AT_ALWAYS
            without = _by_stage(one)
            if even := self.work.follow(frame, self._places, slow):
                without["work", "even work"] = one.without(even)
            total_us = one.total_us
            self._shares = {key: us / total_us for key, us in without.items()} if total_us else {}
        return self._shares

    def read(self, frame: StepFrame, places: Mapping[int, RankPlace]) -> StepModel:
        """The frame's model; the layout is worked out again when places have changed. They are
        held, and nobody changes them there."""
        before, self._places = self._places, places
        if self._layout is None or (places is not before and places != before):
            self._layout = lay_out(places)
        self._filling.follow(frame, places)
        return model(frame, self._layout, self._filling.share, self._filling.even)


def key_of(trouble: SlownessTrouble) -> Key:
    """As which its gain is added up: the what-if's that says the same, where there is one. Of
    several ranks together another number is told once another one joins them."""
    first, *others = sorted(trouble.accounts)
    if first.startswith("stage "):
        return EVEN_STAGES if trouble.named.cause is SlowCause.PIPELINE else ("stage", first)
    if first.startswith("rank ") and not others:
        return "rank", first
    return UNTOLD, " ".join([str(len(others)), first, *others[:MOST_RANKS]])


EVEN_STAGES: Key = ("stages", "even stages")


def _by_stage(one: StepModel) -> dict[Key, float]:
    """The slowest stage as quick as the mean of the others; and all as the mean of all: their work
    is not gone then, but shared out."""
    times = one.stage_times()
    if len(times) < 2:
        return {}
    slowest = max(times, key=lambda stage: times[stage])
    others = statistics.fmean(us for stage, us in times.items() if stage != slowest)
    mean = statistics.fmean(times.values())
    return {
        ("stage", f"stage {slowest}"): one.without(one.with_stages({slowest: others})),
        EVEN_STAGES: one.without(one.with_stages(dict.fromkeys(times, mean))),
    }


def as_its_peers(one: StepModel, excess: Excess) -> dict[int, float]:
    """Its own time if it were as quick as its peers with their work."""
    if excess.rank not in one.own or excess.own_us <= 0:
        return {}
    return {excess.rank: one.own[excess.rank] * min(1.0, excess.usual_us / excess.own_us)}


def _by_cause(
    one: StepModel,
    excesses: Sequence[Excess],
    causes: Mapping[int, SlowCause],
    exchanges: Sequence[SlowExchange],
    told: set[int],
) -> dict[Key, float]:
    by_cause: dict[SlowCause, dict[int, float]] = {}
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
        key = ("cause", SlowCause.LINK.value)
        found[key] = max(0.0, found.get(key, one.total_us) - costs)
    return found
