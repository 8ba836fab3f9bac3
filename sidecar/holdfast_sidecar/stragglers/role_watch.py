"""Ranks of one role, frame by frame: who takes longer than the others, and who was given more."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from holdfast_sidecar.records.steps import StepLine
from holdfast_sidecar.stragglers.change import LEAST
from holdfast_sidecar.stragglers.frame import Excess, Frame
from holdfast_sidecar.stragglers.own_time import own_times
from holdfast_sidecar.stragglers.peers import excesses_of, spell_ranks
from holdfast_sidecar.stragglers.restlessness import Restlessness
from holdfast_sidecar.stragglers.role_work import Company, RoleWork
from holdfast_sidecar.stragglers.series import AWAY, GAP, Series
from holdfast_sidecar.stragglers.suspicion import Suspicion, usual_parts

SHARE_OF_STEP = 0.02
"""An excess that is less than that of a step costs nobody anything."""

RESTLESS = 0.25
"""Own times that vary by that from step to step depend on something that was not told."""


GIVEN_MORE_CAUTION = math.log(20.0)
"""For what is told of a rank's work alone. Where lengths vary they do so in every step, and longer
ones in a row come by chance and pass: of twenty such stretches at most one may be told of."""

TOO_EARLY = "too few of their steps are known yet to say how much is usual"

SILENT_S = 60.0
"""Who told nothing for so long, and for more frames than a report may be late, is slow no more as
far as anybody knows: sixteen frames may last a quarter of an hour."""


class _Told(NamedTuple):
    """A rank that was told slow, with the newest step of its own."""

    step: int
    at_s: float
    excess: Excess


class RoleWatch:
    """Of one role."""

    def __init__(self, role: str) -> None:
        self.role = role
        self.unjudged: list[str] = []
        self.left_out: set[int] = set()
        """Ranks of the newest frame that can't be judged."""
        self.senseless: Sequence[int] = ()
        """Ranks whose newest times make no sense."""
        self._work = RoleWork()
        self._times = Series()
        """Own time beyond the peers', work taken into account, as a part of theirs."""
        self._amounts = Series(GIVEN_MORE_CAUTION)
        """What more work explains, as a part of the peers' time."""
        self._restlessness = Restlessness()
        self._suspicions: dict[int, Suspicion] = {}
        self._told: dict[int, _Told] = {}

    def follow(
        self, lines: Sequence[StepLine], frame: Frame, now_s: float, job_ranks: int
    ) -> Iterable[Excess]:
        """All of this role who are slow now."""
        self.unjudged, self.left_out = [], set()
        company = self._company(lines)
        if company is not None:
            self._judge(company, frame, now_s, job_ranks)
        self._forget(frame, now_s)
        return [told.excess for told in self._told.values()]

    def _forget(self, frame: Frame, now_s: float) -> None:
        """Who was told slow, and of whom nothing was heard for long since."""
        span = frame.step - frame.after_step
        self._told = {
            rank: told
            for rank, told in self._told.items()
            if told.step > frame.step - GAP * span
            and (told.step > frame.step - AWAY * span or told.at_s > now_s - SILENT_S)
        }

    def _company(self, lines: Sequence[StepLine]) -> Company | None:
        """Those who can be compared."""
        own = own_times(lines)
        self.senseless = own.senseless
        if own.senseless:
            self._leave_out(
                own.senseless, f"{_whose(own.senseless)} times make no sense; did a clock jump?"
            )
        if len(own.ranks) == 1:
            self._leave_out(own.ranks, "nobody else has this role to compare with")
        if len(own.ranks) < 2:
            return None
        company = self._work.take(own, self._suspicions.keys())
        for ranks, why in self._work.left_out:
            self._leave_out(ranks, why)
        return company

    def _leave_out(self, ranks: Sequence[int], why: str) -> None:
        self.left_out.update(ranks)
        of_role = f" (role {self.role})" if self.role else ""
        self.unjudged.append(f"{spell_ranks(ranks)}{of_role}: {why}")

    def _judge(self, company: Company, frame: Frame, now_s: float, job_ranks: int) -> None:
        middle = max(statistics.median(company.scaled), 1.0)
        excesses = excesses_of(company.scaled)
        steps = (frame.after_step + 1, frame.step)
        noticed = set(self._times.follow(company.ranks, excesses, steps, now_s, job_ranks))
        if company.by_work:
            noticed.update(
                self._amounts.follow(company.ranks, company.by_work, steps, now_s, job_ranks)
            )
        if self._times.bar is None:
            self._leave_out(company.ranks, TOO_EARLY)
        self._restlessness.take(company.ranks, company.scaled)
        if self._times.sigma > RESTLESS:
            self._tell_restless(company.ranks)
            noticed.clear()
        self._suspect(company, noticed)
        least = max(LEAST, SHARE_OF_STEP * company.whole_us / middle)
        for rank in noticed:
            self._look_closer(rank, frame, now_s, least, len(company.ranks))

    def _tell_restless(self, ranks: Sequence[int]) -> None:
        """Who it is, and whom that leaves with nobody to compare with."""
        who = self._restlessness.beyond(RESTLESS / 2)
        steady = [rank for rank in ranks if rank not in who]
        if not who or not steady:
            self._leave_out(ranks, self._restless(ranks, self._times.sigma))
            return
        self._leave_out(list(who), self._restless(list(who), max(who.values())))
        self._leave_out(
            steady, f"the times of {spell_ranks(list(who))} vary too much to compare with"
        )

    def _restless(self, ranks: Sequence[int], sigma: float) -> str:
        varies = f"{_whose(ranks)} own times vary by {sigma:.0%} from step to step"
        if self._work.varies:
            return f"{varies}, more than {_whose(ranks)} work explains"
        return f"{varies}, and no size of {_whose(ranks)} work is told that could explain it"

    def _suspect(self, company: Company, noticed: set[int]) -> None:
        if not noticed:
            self._suspicions.clear()
            return
        usual = usual_parts(company.lines)
        middle = statistics.median(company.scaled)
        known = self._suspicions
        self._suspicions = {rank: known.get(rank) or Suspicion() for rank in noticed}
        works = company.works()
        for place, rank in enumerate(company.ranks):
            if rank in noticed:
                by_work = company.by_work[place] if company.by_work else 0.0
                expected = middle * (1.0 + by_work)
                suspicion = self._suspicions[rank]
                suspicion.take(company.lines[place], company.own[place], expected, usual)
                suspicion.take_work(works[place], by_work)

    def _look_closer(self, rank: int, frame: Frame, now_s: float, least: float, peers: int) -> None:
        slow = self._times.judge(rank, least, frame.step, now_s)
        given_more = self._amounts.judge(rank, least, frame.step, now_s)
        if slow is None and given_more is None:
            self._told.pop(rank, None)
            return
        verdict = slow or given_more
        if verdict is not None:
            suspicion = self._suspicions[rank]
            slowdown = slow.level if slow else self._times.newest(rank)
            excess = suspicion.excess(rank, self.role, verdict, slowdown, peers)
            excess = replace(excess, is_by_work_alone=slow is None)
            self._told[rank] = _Told(frame.step, now_s, excess)


def _whose(ranks: Sequence[int]) -> str:
    return "its" if len(ranks) == 1 else "their"
