"""How the pending time of an account is put down to categories: at the end of steps, and at the end
of an attempt. Pure.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from holdfast_sidecar.policy.budget import HANGS
from holdfast_sidecar.policy.hardware import OF_HARDWARE, STILL_RAN
from holdfast_sidecar.records.account import MICRO, Account, Category
from holdfast_sidecar.records.plan import Incident
from holdfast_sidecar.records.reports import NodeReport
from holdfast_sidecar.records.steps import SlowCause, SlownessReport, StepLine, parse

# What the newest steps' time was spent on, out of what ranks tell of them. Pure; it remembers up
# to which step was asked.
#
# Time is the whole job's: all ranks make a step together. So a wait for data counts as far as the
# middle rank waits (if one alone does, the others wait for it, which is a straggler's doing), and
# saving, evaluating and compiling as far as the rank does that does most (the others can only
# wait).

RANKS_ASKED = 32
"""Ranks that speak for all of them, spread over the nodes: the middle one of so many lies within a
few percent of the middle one of thousands, and reading all lines would cost a leader several
percent of a core."""


@dataclass(frozen=True)
class StepShares:
    """How the time of steps up to `step` divides: shares of it, what is left is productive."""

    step: int
    step_us: float
    """What one of them took, all in all."""
    shares: Mapping[Category, float]


@dataclass
class StepListener:
    """To one attempt's lines."""

    attempt: int = -1
    up_to: int = -1
    """The step that was asked for last."""
    newest: StepShares | None = None
    _usual_us: dict[int, float] = field(default_factory=dict)
    """rank -> what an ordinary step of it took last."""

    def follow(self, attempt: int, nodes: Collection[NodeReport]) -> StepShares | None:
        """Of the steps that were told of since the last time; None: of none."""
        if attempt != self.attempt:
            self.attempt, self.up_to, self.newest, self._usual_us = attempt, -1, None, {}
        lines = self._fresh(nodes)
        up_to = _told_by_most(lines)
        if up_to <= self.up_to:
            return None
        told = {rank: [one for one in own if one.step <= up_to] for rank, own in lines.items()}
        ranks = [one for rank, own in told.items() if (one := self._sum_up(rank, own))]
        if not ranks:
            return None
        self.up_to = up_to
        self.newest = _together(up_to, ranks)
        return self.newest

    def _fresh(self, nodes: Collection[NodeReport]) -> dict[int, list[StepLine]]:
        """rank -> its lines that are new, of the ranks that are asked."""
        asked = _asked(nodes)
        found: dict[int, list[StepLine]] = {}
        for node in nodes:
            for text in node.steps:
                rank, _, rest = text.partition(" ")
                if rank not in asked or not _is_after(rest, self.up_to):
                    continue
                if (line := parse(text)) is not None:
                    found.setdefault(line.rank, []).append(line)
        return found

    def _sum_up(self, rank: int, lines: Collection[StepLine]) -> _RankTimes | None:
        """One rank's times over these lines; None while no ordinary step of it was measured."""
        measured = [line for line in lines if line.steps > 0]
        if measured:
            steps = sum(line.stride for line in measured)
            self._usual_us[rank] = sum(line.total * line.stride for line in measured) / steps
        usual_us = self._usual_us.get(rank)
        if not lines or usual_us is None:
            return None
        return _RankTimes(
            steps=sum(line.stride for line in lines),
            total_us=sum(line.stride * (_total(line, usual_us) + line.lost) for line in lines),
            data_us=sum(line.stride * line.data for line in lines),
            evaluating_us=sum(line.stride * line.evaluated for line in lines),
            compiling_us=sum(line.stride * _rest(line) for line in lines if line.compiled),
            saving_us=sum(line.stride * _rest(line) for line in lines if not line.compiled),
        )


@dataclass(frozen=True)
class _RankTimes:
    steps: int
    total_us: float
    data_us: float
    evaluating_us: float
    compiling_us: float
    saving_us: float


def _total(line: StepLine, usual_us: float) -> float:
    """The ordinary part of its steps: of a block in which each saved or the like, as usual."""
    return line.total if line.steps else usual_us


def _rest(line: StepLine) -> int:
    return max(0, line.lost - line.evaluated)


def _asked(nodes: Collection[NodeReport]) -> set[str]:
    """Ranks, as lines begin: the first of all, which often saves for the others, and as many more
    as are asked, evenly spread."""
    ranks = sorted(rank.rank for node in nodes for rank in node.ranks)
    every = max(1, -(-len(ranks) // RANKS_ASKED))
    return {str(rank) for rank in ranks[::every]}


def _is_after(rest: str, step: int) -> bool:
    told = rest.partition(" ")[0]
    return told.isdecimal() and int(told) > step


def _told_by_most(lines: Mapping[int, list[StepLine]]) -> int:
    """The last step that at least half of those who tell anything have told of; -1: nobody."""
    newest = sorted(max(line.step for line in own) for own in lines.values())
    return newest[(len(newest) - 1) // 2] if newest else -1


def _together(step: int, ranks: Collection[_RankTimes]) -> StepShares:
    total_us = statistics.median(rank.total_us for rank in ranks)
    steps = statistics.median(rank.steps for rank in ranks)
    parts = {
        Category.EVALUATING: max(rank.evaluating_us for rank in ranks),
        Category.COMPILING: max(rank.compiling_us for rank in ranks),
        Category.SAVING: max(rank.saving_us for rank in ranks),
        Category.DATA_WAIT: statistics.median(rank.data_us for rank in ranks),
    }
    return StepShares(step, total_us / max(steps, 1), dict(_within(parts, total_us)))


def _within(parts: Mapping[Category, float], total_us: float) -> Iterator[tuple[Category, float]]:
    """As shares of the total, which they can't exceed together."""
    left = 1.0
    for category, part_us in parts.items():
        share = min(left, part_us / total_us) if total_us > 0 else 0.0
        left -= share
        yield category, share


STOOD = HANGS | OF_HARDWARE | {"crash", "node_lost", "node_left", "unreachable", "agent_restarted"}
"""Causes after whose onset no step is made any more."""

TOLD_APART = frozenset(
    {SlowCause.EVALUATION.value, SlowCause.SAVING.value, SlowCause.RECOMPILATION.value}
)
"""What others wait for while one does it counts as that, not as a straggler."""

WEIGHT = 1_000_000
"""Shares become whole numbers out of so many."""

UNTOLD_STEPS, UNTOLD_S = 20, 5.0
"""Ranks that made so many steps, and nothing was told of them for so long, won't tell: lines come
from the fourth step on, or the thirteenth where a device is timed, and are read a second later."""

Move = tuple[str, int]


@dataclass(frozen=True)
class Split:
    """What becomes of the pending time; as in an account's Turn."""

    moves: tuple[Move, ...] = ()
    shares: tuple[Move, ...] = ()
    is_at_step: bool = False
    """Steps have ended that it is about; else the attempt has."""
    toll_us: int | None = None
    """What slowness cost, up to which it is accounted for now; None: as before."""


def at_steps_end(
    account: Account, times: StepShares, steps_made: int, since_s: float, toll_s: float | None
) -> Split:
    """The newest steps are known. steps_made: by every rank in this attempt; since_s: since the
    account was turned; toll_s: what slowness cost the run so far, None if nobody judges that."""
    pending_us = account.pending_us + round(since_s * MICRO)
    moves: tuple[Move, ...] = ()
    if account.split_attempt != account.attempt:
        # The first steps are told nothing of; the first one of all was not pending, and another one
        # may be under way.
        warm_us = max(0, pending_us - round(max(steps_made, 1) * times.step_us))
        moves = ((Category.WARMUP.value, warm_us),) if warm_us else ()
        pending_us -= warm_us
    slow_us, toll_us = _slowed(account, times, pending_us, toll_s)
    shares = _shares(times.shares, slow_us / pending_us if pending_us else 0.0)
    return Split(moves, shares, is_at_step=True, toll_us=toll_us)


def _slowed(
    account: Account, times: StepShares, pending_us: int, toll_s: float | None
) -> tuple[int, int | None]:
    """What of this time slowness cost, and up to which it is accounted for then: who is slow is
    known some steps later, and what was told as productive can't be taken back."""
    if toll_s is None:
        return 0, None
    toll_us = round(toll_s * MICRO)
    if toll_us < account.toll_us:
        return 0, toll_us  # counted anew, by a judge that knows nothing of what was before
    most_us = int(pending_us * max(0.0, 1.0 - sum(times.shares.values())))
    slow_us = min(toll_us - account.toll_us, most_us)
    return slow_us, account.toll_us + slow_us


def lost_time_of(standing: SlownessReport | None) -> float | None:
    """Seconds that the whole run waited for somebody slow."""
    if standing is None:
        return None
    return sum(lost for cause, lost in standing.lost_s.items() if cause not in TOLD_APART)


def is_untold(steps_made: int, waits_s: float) -> bool:
    """Whether nothing will be told of these steps any more."""
    return steps_made >= UNTOLD_STEPS and waits_s >= UNTOLD_S


def all_productive() -> Split:
    """Steps were made of which nothing is told."""
    return Split(shares=((Category.PRODUCTIVE.value, WEIGHT),), is_at_step=True)


def at_attempts_end(
    account: Account, times: StepShares | None, incident: Incident | None, now_unix_s: float
) -> Split:
    """Steps are made no longer. From its end backwards: since it was declared the attempt is being
    drained, since its onset nothing moved, before that was training as it had been told last."""
    moves = () if incident is None else _moves(incident, now_unix_s)
    if times is not None:
        return Split(moves, _shares(times.shares, 0.0))
    is_split = account.split_attempt == account.attempt
    rest = Category.PRODUCTIVE if is_split else Category.WARMUP
    return Split(moves, ((rest.value, WEIGHT),))


def _moves(incident: Incident, now_unix_s: float) -> tuple[Move, ...]:
    detected = incident.detected_unix_s
    drained_us = max(0, round((now_unix_s - detected) * MICRO))
    stood_us = 0
    if incident.cause in STOOD and STILL_RAN not in incident.evidence and incident.since_unix_s:
        stood_us = max(0, round((detected - incident.since_unix_s) * MICRO))
    moves = ((Category.DRAINING, drained_us), (Category.HANG_UNDETECTED, stood_us))
    return tuple((category.value, amount) for category, amount in moves if amount)


def _shares(parts: Mapping[Category, float], slowed: float) -> tuple[Move, ...]:
    """Weights of the parts, what is left as productive: last, so that it takes the rounding."""
    known = {**parts, Category.STRAGGLER: slowed}
    weights = [(c.value, int(share * WEIGHT)) for c, share in known.items() if share > 0]
    rest = max(0, WEIGHT - sum(weight for _, weight in weights))
    return (*weights, (Category.PRODUCTIVE.value, rest))
