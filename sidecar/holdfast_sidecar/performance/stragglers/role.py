"""Ranks of one role, frame by frame: who takes longer than the others, and who was given more."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import NamedTuple

from holdfast_sidecar.performance.stragglers.change import (
    AWAY,
    GAP,
    LEAST,
    NEWEST,
    RoleSeries,
    SlowVerdict,
)
from holdfast_sidecar.performance.stragglers.frame import Excess, StepFrame
from holdfast_sidecar.performance.stragglers.peers import (
    PARTS,
    OwnTimes,
    excesses_of,
    own_times,
    parts_of,
    spell_ranks,
)
from holdfast_sidecar.performance.stragglers.recurring import Restlessness
from holdfast_sidecar.performance.stragglers.trouble import MOST_CERTAIN
from holdfast_sidecar.performance.stragglers.workload import WorkFit, is_uneven, of_one_source
from holdfast_sidecar.records.steps import StepLine

# Ranks of one role as they can be compared: own times, had all of them had as much work.

LASTS = 256
"""Frames. Work that was even for so long is even again, and needs no sizes told."""

SAME = 0.02
"""Tokens that differ by less are as many; then the squares tell how the work differs."""

_tokens_of = itemgetter(StepLine._fields.index("tokens"))
_squares_of = itemgetter(StepLine._fields.index("squares"))


@dataclass(frozen=True)
class RoleFrame:
    """Of one frame; all sequences in the order of `ranks`."""

    ranks: Sequence[int]
    lines: Sequence[StepLine]
    own: Sequence[int]
    scaled: Sequence[float]
    """Own time, had it had as much work as the median rank."""
    whole_us: float
    """A step of the median rank, from end to end."""
    by_work: Sequence[float] = field(default_factory=list)
    """What more work explains, as a part of the peers' time; empty where work is even."""

    def works(self) -> list[float]:
        """Work beside the median rank's: of tokens, or of squares where tokens are the same."""
        tokens, squares = list(map(_tokens_of, self.lines)), list(map(_squares_of, self.lines))
        usual_tokens, usual_squares = statistics.median(tokens), statistics.median(squares)
        if not self.by_work or usual_tokens <= 0:
            return [1.0] * len(tokens)
        ratios = [count / usual_tokens for count in tokens]
        if usual_squares <= 0:
            return ratios
        return [
            square / usual_squares if abs(ratio - 1.0) < SAME else ratio
            for ratio, square in zip(ratios, squares, strict=True)
        ]


class RoleWork:
    """Of one role: whether its work varies, and what it costs."""

    def __init__(self) -> None:
        self.left_out: list[tuple[Sequence[int], str]] = []
        """Of the newest frame: ranks that can't be judged, and why."""
        self._fit = WorkFit()
        self._varied = 0
        """Frames until the work counts as even again."""

    @property
    def varies(self) -> bool:
        """Whether ranks of this role lately had more to do than others."""
        return self._varied > 0

    def take(self, times: OwnTimes, suspects: Collection[int]) -> RoleFrame | None:
        """One frame of two ranks or more; `suspects` teach nothing of what work costs."""
        self.left_out = []
        times = times._replace(lines=of_one_source(times.lines))
        tokens = list(map(_tokens_of, times.lines))
        squares = list(map(_squares_of, times.lines))
        told = [count for count in tokens if count > 0]
        with_squares = min(squares) > 0 or 0 not in map(_squares_of, _telling(times.lines))
        is_varied = is_uneven(told) or (with_squares and is_uneven([s for s in squares if s > 0]))
        self._varied = LASTS if is_varied else max(self._varied - 1, 0)
        if not self.varies:
            return RoleFrame(times.ranks, times.lines, times.own, times.own, times.whole_us)
        if len(told) < len(tokens):
            silent = [r for r, count in zip(times.ranks, tokens, strict=True) if count <= 0]
            self.left_out.append((silent, "work varies, and no size of theirs is told"))
            times = _only(times, [place for place, count in enumerate(tokens) if count > 0])
        return self._scaled(times, with_squares, suspects) if len(told) > 1 else None

    def _scaled(
        self, times: OwnTimes, with_squares: bool, suspects: Collection[int]
    ) -> RoleFrame | None:
        tokens = list(map(_tokens_of, times.lines))
        squares = list(map(_squares_of, times.lines)) if with_squares else [0] * len(tokens)
        company = None
        if self._fit.is_ready:
            company = _scaled_by(self._fit.expected(tokens, squares), times)
        else:
            why = "work varies, and what it costs is not known yet"
            self.left_out.append((times.ranks, why))
        healthy = [place for place, rank in enumerate(times.ranks) if rank not in suspects]
        chosen = self._fit.choose(healthy)
        self._fit.take([(tokens[i], squares[i], times.compute[i]) for i in chosen])
        return company


def _telling(lines: Sequence[StepLine]) -> list[StepLine]:
    return [line for line in lines if line.tokens > 0]


def _only(times: OwnTimes, places: Sequence[int]) -> OwnTimes:
    return times._replace(
        ranks=[times.ranks[i] for i in places],
        own=[times.own[i] for i in places],
        compute=[times.compute[i] for i in places],
        lines=[times.lines[i] for i in places],
    )


def _scaled_by(expected: Sequence[float], times: OwnTimes) -> RoleFrame:
    usual = statistics.median(expected)
    scaled = [
        own + compute * (usual / e - 1.0)
        for own, compute, e in zip(times.own, times.compute, expected, strict=True)
    ]
    middle = max(statistics.median(scaled), 1.0)
    by_work = [(e - usual) / middle for e in expected]
    return RoleFrame(times.ranks, times.lines, times.own, scaled, times.whole_us, by_work)


# What is kept of a rank that may be slow: where its time goes, and how sure that is.

PARTS_SAMPLE = 64
"""Peers whose parts give the usual ones."""

PERSISTENT_S = 30.0
PERSISTENT_STEPS = 30
"""Both: short steps make thirty in a moment, and of steps of a minute one would do."""


CERTAIN = 0.99

Parts = tuple[float, ...]


class Suspicion:
    """Means over a rank's newest frames, since it was first noticed."""

    def __init__(self) -> None:
        self._frames = 0
        self._own_us = 0.0
        self._peers_us = 0.0
        self._parts_us = [0.0] * len(PARTS)
        self._work = 1.0
        self._by_work = 0.0

    def take(self, line: StepLine, own_us: float, peers_us: float, usual: Parts) -> None:
        """One more frame; the last `NEWEST` count."""
        self._frames = min(self._frames + 1, NEWEST)
        share = 1.0 / self._frames
        self._own_us += share * (own_us - self._own_us)
        self._peers_us += share * (peers_us - self._peers_us)
        beyond = [mine - theirs for mine, theirs in zip(parts_of(line), usual, strict=True)]
        self._parts_us = [
            mean + share * (new - mean) for mean, new in zip(self._parts_us, beyond, strict=True)
        ]

    def take_work(self, work: float, by_work: float) -> None:
        """Of the same frame: its work beside its peers', and what that explains."""
        share = 1.0 / self._frames
        self._work += share * (work - self._work)
        self._by_work += share * (by_work - self._by_work)

    def excess(
        self, rank: int, role: str, verdict: SlowVerdict, slowdown: float, peers: int
    ) -> Excess:
        """What it comes to, in a role of so many."""
        return Excess(
            rank=rank,
            role=role,
            slowdown=round(slowdown, 4),
            confidence=round(confidence(verdict.evidence, peers), 3),
            since_step=verdict.since_step,
            steps=verdict.steps,
            own_us=self._own_us,
            peers_us=self._peers_us,
            parts_us=dict(zip(PARTS, self._parts_us, strict=True)),
            work=round(self._work, 3),
            by_work=round(self._by_work, 4),
            is_persistent=verdict.lasted_s >= PERSISTENT_S and verdict.steps >= PERSISTENT_STEPS,
        )


def confidence(evidence: float, peers: int) -> float:
    """From a cumulated log likelihood ratio. It is divided, as tails are heavier and neighbouring
    steps more alike than the ratio takes them to be."""
    return min(1.0 - math.exp(-evidence / 4.0), MOST_CERTAIN.get(peers, CERTAIN))


def usual_parts(lines: Sequence[StepLine]) -> Parts:
    """Of each part of a step the median."""
    some = lines[:: -(-len(lines) // PARTS_SAMPLE)]
    columns = zip(*map(parts_of, some), strict=True)
    return tuple(float(sorted(column)[len(column) // 2]) for column in columns)


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
        self._times = RoleSeries()
        """Own time beyond the peers', work taken into account, as a part of theirs."""
        self._amounts = RoleSeries(GIVEN_MORE_CAUTION)
        """What more work explains, as a part of the peers' time."""
        self._restlessness = Restlessness()
        self._suspicions: dict[int, Suspicion] = {}
        self._told: dict[int, _Told] = {}

    def follow(
        self, lines: Sequence[StepLine], frame: StepFrame, now_s: float, job_ranks: int
    ) -> Iterable[Excess]:
        """All of this role who are slow now."""
        self.unjudged, self.left_out = [], set()
        company = self._company(lines)
        if company is not None:
            self._judge(company, frame, now_s, job_ranks)
        self._forget(frame, now_s)
        return [told.excess for told in self._told.values()]

    def _forget(self, frame: StepFrame, now_s: float) -> None:
        """Who was told slow, and of whom nothing was heard for long since."""
        span = frame.step - frame.after_step
        self._told = {
            rank: told
            for rank, told in self._told.items()
            if told.step > frame.step - GAP * span
            and (told.step > frame.step - AWAY * span or told.at_s > now_s - SILENT_S)
        }

    def _company(self, lines: Sequence[StepLine]) -> RoleFrame | None:
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

    def _judge(self, company: RoleFrame, frame: StepFrame, now_s: float, job_ranks: int) -> None:
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

    def _suspect(self, company: RoleFrame, noticed: set[int]) -> None:
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

    def _look_closer(
        self, rank: int, frame: StepFrame, now_s: float, least: float, peers: int
    ) -> None:
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
