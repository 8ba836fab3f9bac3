"""Which category of a run's account is open now, by the plan and what its ranks do. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from holdfast_sidecar.performance.goodput import costs, splitting
from holdfast_sidecar.performance.goodput.splitting import Split, StepShares
from holdfast_sidecar.policy import requeue
from holdfast_sidecar.policy.attached import END, LEAVE, attached_run, is_attached
from holdfast_sidecar.policy.budget import HANGS
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.account import (
    CLOSED,
    MICRO,
    PENDING,
    Account,
    Category,
    Phase,
    ProgressMark,
    spell_cost,
    spell_marks,
)
from holdfast_sidecar.records.plan import TERMINAL, WITHHELD, Incident, Plan
from holdfast_sidecar.records.reports import RankReport
from holdfast_sidecar.store.account import PhaseFold, Turn

ATTACHED = "attached"
"""The run of a job that somebody else launched: nobody says when another one of it begins."""

UNSEEN_PHASES = frozenset({"computing", "resting", "stopped", "gone"})
"""What is said of a rank without hooks: that it lives, and nothing of its steps."""


UNSEEN_START = frozenset({Category.INIT, Category.SETUP})
"""In which a run stays whose steps are never seen; without hooks in the first, as the hooks tell
when it is over."""

SETUP_S = 1800.0
"""Ranks that have made no step for so long may well make none that could be seen: in a loop without
an optimizer of torch's (an evaluation, say). One that is stuck is told after stall.first_step_s, a
third of it, as a stall."""


@dataclass(frozen=True)
class AccountState:
    """What is open from now on, and what it is weighted by; see `records.account.Account`."""

    open: str
    stage: str = ""
    gpus: int = 0
    run: str = ""
    attempt: int = -1
    nodes: int = 0
    is_anew: bool = False
    """Another run than the account's has begun."""


def stand(cluster: Cluster, account: Account | None) -> AccountState:
    """How the run stands; `account` is as far as it is written."""
    plan = cluster.plan or attached_run(cluster)
    if plan is None:
        return _without_plan(cluster, account)
    run = run_of(cluster, plan)
    if plan.state in TERMINAL and (waiting := _of_another_run(cluster, plan)):
        is_anew = account is not None and account.run != ""
        return AccountState(Category.QUEUED.value, gpus=waiting, is_anew=is_anew)
    is_other = account is not None and account.run not in ("", run)
    known = None if is_other else account
    opened, phase = _open(cluster, plan, known)
    incident = _dealt_with(cluster, plan)
    before = 0 if known is None else known.nodes
    return AccountState(
        opened,
        f"{incident}:{phase.value}" if incident and phase is not None else "",
        plan.world_size,
        run,
        plan.attempt,
        max(before, len(plan.members)),
        is_other,
    )


def run_of(cluster: Cluster, plan: Plan) -> str:
    """Which run of the job a plan is of."""
    if cluster.plan is None:
        return ATTACHED
    return f"{plan.began_unix_s:.6f}" if plan.began_unix_s else str(plan.attempt)


def _without_plan(cluster: Cluster, account: Account | None) -> AccountState:
    """Before the first attempt; or the store was emptied, and it goes on as it was."""
    if account is not None and account.run == ATTACHED and is_attached(cluster):
        return AccountState(CLOSED, run=ATTACHED, attempt=account.attempt, nodes=account.nodes)
    if account is not None and account.run:
        return AccountState(
            account.open,
            account.stage,
            account.gpus,
            account.run,
            account.attempt,
            account.nodes,
        )
    waiting = sum(agent.slots for agent in cluster.waiting())
    return AccountState(Category.QUEUED.value, gpus=waiting)


def _of_another_run(cluster: Cluster, plan: Plan) -> int:
    """Slots of nodes that wait for a run after this one, which is over; as `beginning.begin`."""
    leaving = {member.incarnation for member in plan.members}
    return sum(
        agent.slots
        for agent in cluster.waiting()
        if agent.attempt >= plan.attempt and agent.incarnation not in leaving
    )


def _open(cluster: Cluster, plan: Plan, account: Account | None) -> tuple[str, Phase | None]:
    if plan.state in TERMINAL:
        return CLOSED, None
    if plan.state == "evidence":
        return Category.DRAINING.value, Phase.DRAIN
    if plan.state == "ended":
        return _between(cluster, plan)
    ranks = cluster.ranks(plan)
    if (other := _instead_of_training(cluster, plan, ranks.values())) is not None:
        return other.value, None
    if requeue.under_way(cluster, plan):
        return _recovery(plan, ranks, _is_out_of_sight(cluster, plan, account))
    is_same = account is not None and account.attempt == plan.attempt
    # A sidecar that was just restarted tells of no rank yet.
    was_training = is_same and account is not None and account.is_training
    if was_training or any(rank.step > rank.resumed_step for rank in ranks.values()):
        return PENDING, None
    category = _beginning(plan, ranks)
    if category in UNSEEN_START and _is_out_of_sight(cluster, plan, account):
        category = Category.UNOBSERVED
    return category.value, None


def _between(cluster: Cluster, plan: Plan) -> tuple[str, Phase | None]:
    """One attempt is over, and the next isn't opened."""
    order = cluster.checkpoint
    writes = order is not None and order.state == "writing" and order.trigger == "failure"
    ends = any(
        cluster.is_alive(member.node)
        and (agent := cluster.agents[member.node]).incarnation == member.incarnation
        and agent.state != "joining"
        for member in plan.members
    )
    if ends or writes:
        return Category.DRAINING.value, Phase.DRAIN
    if plan.pause is not None:
        return Category.PAUSED.value, None
    return Category.RESTART.value, Phase.RENDEZVOUS


def _instead_of_training(
    cluster: Cluster, plan: Plan, ranks: Collection[RankReport]
) -> Category | None:
    """What an attempt under way does that makes no steps, and for which nobody ends it."""
    if not ranks:
        return None
    if len(ranks) >= plan.world_size and all(rank.has_left for rank in ranks):
        return Category.DRAINING
    is_broken = any(not rank.alive and not rank.has_left for rank in ranks)
    if plan.pause is not None and is_broken:
        return Category.PAUSED
    if all(rank.phase in UNSEEN_PHASES for rank in ranks):
        return Category.UNOBSERVED
    return _left_alone(cluster, plan)


def _left_alone(cluster: Cluster, plan: Plan) -> Category | None:
    """It stands, and nothing is done about it, or that is for whoever launched it."""
    standing = [
        one
        for one in cluster.incidents.values()
        if not one.recovered_unix_s and not one.ended_unix_s
    ]
    if any(one.decided in (LEAVE, END) for one in standing) and cluster.plan is None:
        return Category.RESTART
    hung = (one for one in standing if one.decided in WITHHELD and one.cause in HANGS)
    return Category.HANG_UNDETECTED if any(o.attempt == plan.attempt for o in hung) else None


def _dealt_with(cluster: Cluster, plan: Plan) -> str:
    """The incident whose restart is under way; empty: none is."""
    if plan.state in ("evidence", "ended"):
        return plan.incident
    under_way = requeue.under_way(cluster, plan)
    newest = max(under_way, key=lambda one: (one.attempt, one.detected_unix_s), default=None)
    return "" if newest is None else newest.identifier


def _recovery(
    plan: Plan, ranks: Mapping[int, RankReport], is_out_of_sight: bool
) -> tuple[str, Phase | None]:
    """A restart on its way to the first step. is_out_of_sight: which nobody will see."""
    if any(rank.phase == "restoring" for rank in ranks.values()):
        return Category.RESTORE.value, Phase.RESTORE
    has_begun = any(
        rank.in_loop or rank.resumed_step or rank.step > rank.resumed_step
        for rank in ranks.values()
    )
    is_whole = len(ranks) >= plan.world_size
    if is_whole and is_out_of_sight:
        return Category.UNOBSERVED.value, Phase.FIRST_STEP
    phase = Phase.FIRST_STEP if has_begun and is_whole else Phase.RENDEZVOUS
    return Category.RESTART.value, phase


def _is_out_of_sight(cluster: Cluster, plan: Plan, account: Account | None) -> bool:
    """Whether the run has had all the time that a first step takes, and never showed one."""
    if account is None or requeue.has_shown_steps(cluster, plan, account):
        return False
    return sum(account.seconds(category) for category in UNSEEN_START) >= SETUP_S


def _beginning(plan: Plan, ranks: Mapping[int, RankReport]) -> Category:
    """A run's first attempt on its way to the first step."""
    if len(ranks) < plan.world_size:
        return Category.INIT
    phases = {rank.phase for rank in ranks.values()}
    if "restoring" in phases:
        return Category.RESTORE
    if "compiling" in phases or any(rank.in_loop for rank in ranks.values()):
        return Category.WARMUP
    return Category.SETUP


# What a restart loses: training since the step that it goes on from, which has to be done again.
#
# Productive time that still stands (its net) grows with the steps and falls back to what it was at
# the step that was resumed from; what it falls by is lost. Marks along the way say how much stood
# at which step. Pure.

MARKS_KEPT = 24
"""Between two marks time is taken to grow evenly with the steps, so that few will do: close ones
for the newest steps, to which snapshots go back, and ever wider ones before."""

NEWEST_KEPT = 8


def with_mark(marks: Sequence[ProgressMark], mark: ProgressMark) -> tuple[ProgressMark, ...]:
    """With one more, at its end; of the older ones every second is dropped when there are many."""
    if marks and mark.step <= marks[-1].step:
        return tuple(marks)
    grown = [*marks, mark]
    if len(grown) > MARKS_KEPT:
        old = grown[1:-NEWEST_KEPT]
        grown = [grown[0], *old[1::2], *grown[-NEWEST_KEPT:]]
    return tuple(grown)


def net_at(marks: Sequence[ProgressMark], step: int, reached: ProgressMark) -> int:
    """What stood when this step was completed. reached: how far it came, and what stood then."""
    earlier = [mark for mark in marks if mark.step < reached.step]
    path = [*earlier, reached]
    if step >= reached.step:
        return reached.net_us
    if step <= path[0].step:
        return min(path[0].net_us, reached.net_us)
    index = next(i for i, mark in enumerate(path) if mark.step >= step)
    before, after = path[index - 1], path[index]
    part = (step - before.step) / (after.step - before.step)
    return min(round(before.net_us + part * (after.net_us - before.net_us)), reached.net_us)


def gone_back(marks: Sequence[ProgressMark], step: int, net_us: int) -> tuple[ProgressMark, ...]:
    """The marks of a run that goes on from this step, where so much stood."""
    return (*(mark for mark in marks if mark.step < step), ProgressMark(step, net_us))


# The next turn of a run's account, by how the job stands and what its ranks told. Pure.


@dataclass(frozen=True)
class AccountInput:
    """What the leader knows beside the cluster."""

    now_unix_s: float
    since_s: float = 0.0
    """Since the account was turned last."""
    times: StepShares | None = None
    """Steps that were told of since then."""
    newest: StepShares | None = None
    """The newest that were told of in this attempt; None: none, or not to this leader."""
    toll_s: float | None = None
    """See splitting.toll_of."""
    step_split: int = -1
    """Step that ranks had completed when time was split in the last turn; -1: it was not."""


def next_turn(
    account: Account | None, standing: AccountState, cluster: Cluster, heard: AccountInput
) -> Turn:
    """What is to be done now. `account` is None for a run that has none yet."""
    fields = {
        "run": standing.run,
        "attempt": str(standing.attempt),
        "nodes": str(standing.nodes),
    }
    if standing.open == PENDING:
        fields["weight"] = str(standing.gpus)
    if account is None:
        return Turn(standing.open, standing.stage, standing.gpus, standing.is_anew, fields=fields)
    split = _split(account, standing, cluster, heard)
    marks = _marked(account, heard.step_split)
    folds, marks = _folded(account, marks, cluster)
    if standing.open == PENDING and not marks:
        marks = (ProgressMark(_resumed(_ranks(cluster)), account.net_us),)
    if marks != account.marks:
        fields["marks"] = spell_marks(marks)
    return Turn(
        standing.open,
        standing.stage,
        standing.gpus,
        moves=split.moves,
        shares=split.shares,
        fields={**fields, **_noted(split, account)},
        folds=folds,
    )


def is_split_at_step(turn: Turn) -> bool:
    """Whether it puts time down to categories while training goes on."""
    return "split" in turn.fields


def completed(cluster: Cluster) -> int:
    """Steps that all ranks have completed."""
    return min((rank.step for rank in _ranks(cluster)), default=0)


def _split(
    account: Account, standing: AccountState, cluster: Cluster, heard: AccountInput
) -> Split:
    if not account.is_training:
        return Split()
    is_same = (account.attempt, account.run) == (standing.attempt, standing.run)
    if standing.open != PENDING or not is_same:
        incident = _ending(cluster, account.attempt)
        return splitting.at_attempts_end(account, heard.newest, incident, heard.now_unix_s)
    made = completed(cluster) - _resumed(_ranks(cluster))
    if heard.times is not None:
        return splitting.at_steps_end(account, heard.times, made, heard.since_s, heard.toll_s)
    waits_s = account.pending_us / MICRO
    if heard.newest is None and splitting.is_untold(made, waits_s):
        return splitting.all_productive()
    return Split()


def _noted(split: Split, account: Account) -> Mapping[str, str]:
    noted = {"split": str(account.attempt)} if split.is_at_step else {}
    return noted if split.toll_us is None else {**noted, "toll": str(split.toll_us)}


def _marked(account: Account, step: int) -> tuple[ProgressMark, ...]:
    """The account's marks, with what stands at the step up to which time was split last."""
    if step < 0 or not account.is_training:
        return account.marks
    return with_mark(account.marks, ProgressMark(step, account.net_us))


def _folded(
    account: Account, marks: tuple[ProgressMark, ...], cluster: Cluster
) -> tuple[tuple[PhaseFold, ...], tuple[ProgressMark, ...]]:
    """Incidents that are over since, and the marks after them. Of several that one restart ended
    the first has lost the work: nothing was done between them."""
    over = [
        one
        for one in costs.of_run(cluster.incidents, account)
        if costs.is_over(one) and one.identifier not in account.costs
    ]
    over.sort(key=lambda one: (one.attempt, one.detected_unix_s))
    first = next((one for one in over if one.recovered_unix_s), None)
    folds, lost_us, lost_steps = [], 0, 0
    if first is not None:
        reached = ProgressMark(first.step_reached, account.net_us)
        stands = net_at(marks, first.step_resumed, reached)
        lost_us = account.net_us - stands
        lost_steps = max(0, first.step_reached - first.step_resumed)
        if marks:  # else no step was seen yet, and the first to be seen begins them
            marks = gone_back(marks, first.step_resumed, stands)
    for incident in over:
        lost = (lost_us, lost_steps) if incident is first else (0, 0)
        cost = costs.cost_of(incident, lost[0], account.weight, lost[1])
        folds.append(PhaseFold(incident.identifier, *spell_cost(cost)))
    return tuple(folds), marks


def _ending(cluster: Cluster, attempt: int) -> Incident | None:
    """The incident that ended this attempt, or is being dealt with in it."""
    own = [one for one in cluster.incidents.values() if one.attempt == attempt]
    unfinished = [one for one in own if not one.recovered_unix_s]
    return max(unfinished, key=lambda one: one.detected_unix_s, default=None)


def _ranks(cluster: Cluster) -> Collection[RankReport]:
    plan: Plan | None = cluster.plan or attached_run(cluster)
    return () if plan is None else cluster.ranks(plan).values()


def _resumed(ranks: Collection[RankReport]) -> int:
    return max((rank.resumed_step for rank in ranks), default=0)
