"""What slowness cost so far: seconds of the whole job, by cause and by rank, over all attempts."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from holdfast_sidecar.performance.stragglers.change import KEPT
from holdfast_sidecar.performance.stragglers.frame import StepFrame
from holdfast_sidecar.performance.stragglers.placement import RankPlace
from holdfast_sidecar.performance.stragglers.step_model import StepModel
from holdfast_sidecar.performance.stragglers.trouble import SlownessTrouble, apportion
from holdfast_sidecar.records.steps import SlowCause, SlownessReport

RANKS_KEPT = 64
RANKS_TOLD = 16
"""The dearest: a job of thousands tells a few lines and no page."""

SET_ASIDE = 64
"""Accounts that may be opened again: more are not slow at once but for a moment."""


@dataclass
class _Account:
    """One trouble that is going on. Its cause may turn out to be another one."""

    cause: SlowCause
    since_step: int
    lost_s: float = 0.0
    closed_at: int = 0
    """The step at which nobody spoke of it any more."""


@dataclass
class LostTime:
    """Adds up; what is over is closed under the cause it was last put down to.

    Nobody speaks of a slow rank while it tells nothing, or its peers don't. What comes back and
    began before it went was never over: its account goes on, and tells what was lost since then.
    """

    watched_s: float = 0.0
    _closed: dict[str, float] = field(default_factory=dict)
    _charged: dict[str, float] = field(default_factory=dict)
    _by_rank: dict[str, float] = field(default_factory=dict)
    _open: dict[str, _Account] = field(default_factory=dict)
    _aside: dict[str, _Account] = field(default_factory=dict)

    def resume(self, standing: SlownessReport) -> None:
        """Go on from what another leader told last, whichever attempt it was."""
        self.watched_s = standing.watched_s
        self._closed = dict(standing.lost_s)
        self._charged = dict(standing.charged_s or standing.lost_s)
        self._by_rank = dict(standing.lost_by_rank)
        self._open, self._aside = {}, {}

    def watch(self, lasted_s: float) -> None:
        """A frame lasted so long."""
        self.watched_s += lasted_s

    def open(self, accounts: Iterable[str], cause: SlowCause, since_step: int) -> bool:
        """These are put down to that cause from now on; whether one of them was not before."""
        is_new = False
        for name in accounts:
            account = self._open.get(name)
            if account is None:
                account = self._open[name] = self._take_back(name, cause, since_step)
                is_new = True
            account.cause = cause
            account.since_step = min(account.since_step, since_step)
        return is_new

    def _take_back(self, name: str, cause: SlowCause, since_step: int) -> _Account:
        aside = self._aside.pop(name, None)
        if aside is not None and since_step < aside.closed_at:
            return aside
        if aside is not None:
            self._settle(aside)
        return _Account(cause, since_step)

    def charge(self, accounts: Collection[str], lost_s: float) -> None:
        """These, which are open, share so much more."""
        for name in accounts:
            account, share = self._open[name], lost_s / len(accounts)
            account.lost_s += share
            cause = account.cause.value
            self._charged[cause] = self._charged.get(cause, 0.0) + share

    def charge_ranks(self, ranks: Collection[str], lost_s: float) -> None:
        """Ranks, as people know them, share so much more."""
        for name in ranks:
            self._by_rank[name] = self._by_rank.get(name, 0.0) + lost_s / len(ranks)
        if len(self._by_rank) > 2 * RANKS_KEPT:
            self._by_rank = dict(_dearest(self._by_rank, RANKS_KEPT))

    def lost_s(self, accounts: Iterable[str]) -> float:
        """What these cost since they were opened."""
        return sum(self._open[name].lost_s for name in accounts if name in self._open)

    def since_step(self, accounts: Iterable[str]) -> int:
        """Since when these, which are open, add up."""
        return min(self._open[name].since_step for name in accounts)

    def close_others(self, going_on: Iterable[str], step: int) -> None:
        """Of all but these nobody speaks any more, as of this step."""
        kept = set(going_on)
        for name in [name for name in self._open if name not in kept]:
            account = self._aside[name] = self._open.pop(name)
            account.closed_at = step
        while len(self._aside) > SET_ASIDE:
            self._settle(self._aside.pop(next(iter(self._aside))))

    def close_all(self) -> None:
        """The attempt is over, and with it all that went on."""
        for account in (*self._open.values(), *self._aside.values()):
            self._settle(account)
        self._open, self._aside = {}, {}

    def _settle(self, account: _Account) -> None:
        cause = account.cause.value
        self._closed[cause] = self._closed.get(cause, 0.0) + account.lost_s

    @property
    def by_cause(self) -> dict[str, float]:
        """Cause -> seconds, the dearest first."""
        sums = dict(self._closed)
        for account in (*self._open.values(), *self._aside.values()):
            cause = account.cause.value
            sums[cause] = sums.get(cause, 0.0) + account.lost_s
        return _rounded(_dearest(sums, len(SlowCause)))

    @property
    def charged(self) -> dict[str, float]:
        """Cause -> seconds that were put down to it, whatever they turned out to be later: each of
        them only grows."""
        return _rounded(_dearest(self._charged, len(SlowCause)))

    @property
    def by_rank(self) -> dict[str, float]:
        """`rank on node` -> seconds, the dearest few."""
        return _rounded(_dearest(self._by_rank, RANKS_TOLD))


def _dearest(sums: Mapping[str, float], most: int) -> list[tuple[str, float]]:
    return sorted(sums.items(), key=lambda item: -item[1])[:most]


def _rounded(sums: Iterable[tuple[str, float]]) -> dict[str, float]:
    return {name: round(lost, 6) for name, lost in sums if lost > 0}


# What was lost before it was known by whom: who is found slow has been so for some ten steps.
# They are remembered here, and charged once it is known.


@dataclass
class _Entry:
    """One frame that was judged."""

    after_step: int
    steps: int
    model: StepModel
    charged: dict[tuple[str, ...], float]
    """Accounts -> what they were charged of each step, microseconds."""


@dataclass
class DeferredCost:
    """Of one attempt, as far back as a rank's own past is known."""

    _entries: deque[_Entry] = field(default_factory=lambda: deque(maxlen=KEPT))

    def note(
        self, frame: StepFrame, model: StepModel, costs: Sequence[tuple[SlownessTrouble, float]]
    ) -> None:
        """What of this frame was charged to whom, microseconds of a step."""
        charged = {one.accounts: us for one, us in costs}
        steps = frame.step - frame.after_step
        self._entries.append(_Entry(frame.after_step, steps, model.packed(), charged))

    def due(
        self, troubles: Sequence[SlownessTrouble], model: StepModel
    ) -> list[tuple[SlownessTrouble, float]]:
        """Who is to be charged how many seconds more for frames before this one.

        All together never more than what they cost together: what was charged to one stays.
        """
        due = []
        for entry in self._entries:
            going_on = [one for one in troubles if one.since_step <= entry.after_step + 1]
            if not going_on:
                continue
            then = [replace(one, quick=_then(one, model, entry.model)) for one in going_on]
            costs = apportion(then, entry.model)
            room = sum(costs) - sum(entry.charged.values())
            wanted = [
                max(0.0, us - entry.charged.get(one.accounts, 0.0))
                for one, us in zip(going_on, costs, strict=True)
            ]
            share = min(1.0, room / sum(wanted)) if sum(wanted) > 0 else 0.0
            if share <= 0:
                continue
            for one, us in zip(going_on, wanted, strict=True):
                if us > 0:
                    before = entry.charged.get(one.accounts, 0.0)
                    entry.charged[one.accounts] = before + share * us
                    due.append((one, share * us * entry.steps / 1e6))
        return due


def _then(one: SlownessTrouble, now: StepModel, then: StepModel) -> dict[int, float]:
    """How long its ranks would have taken, were they as much too slow as they are now."""
    return {
        rank: then.own[rank] * us / now.own[rank]
        for rank, us in one.quick.items()
        if rank in then.own and now.own.get(rank, 0.0) > 0
    }


# Puts the time that a frame lost down to those who are slow in it.


def charge(
    troubles: Sequence[SlownessTrouble],
    frame: StepFrame,
    model: StepModel,
    places: Mapping[int, RankPlace],
    toll: LostTime,
    arrears: DeferredCost,
) -> None:
    """Of who was not known to be slow before, also what was lost since then."""
    steps = frame.step - frame.after_step
    opened = [toll.open(one.accounts, one.named.cause, one.since_step) for one in troubles]
    costs = list(zip(troubles, apportion(troubles, model), strict=True))
    # Of who is slow in some steps only it is known what those before cost.
    steady = [(one, us) for one, us in costs if not one.recurs]
    due = arrears.due([one for one, _ in steady], model) if any(opened) else []
    arrears.note(frame, model, steady)
    now = [(one, (us * steps + one.owed_us) / 1e6) for one, us in costs]
    for trouble, lost_s in (*due, *now):
        toll.charge(trouble.accounts, lost_s)
        if trouble.blames_ranks:
            names = [f"{rank} on {places[rank].node}" for rank in trouble.ranks]
            toll.charge_ranks(names, lost_s)
    toll.close_others([name for one in troubles for name in one.accounts], frame.step)
