"""Which category of a run's account is open now, by the plan and what its ranks do. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from holdfast_sidecar.policy import requeue
from holdfast_sidecar.policy.attached import END, LEAVE, attached_run, is_attached
from holdfast_sidecar.policy.budget import HANGS
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.account import CLOSED, PENDING, Account, Category, Phase
from holdfast_sidecar.records.plan import TERMINAL, WITHHELD, Plan
from holdfast_sidecar.records.reports import RankReport

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
class Standing:
    """What is open from now on, and what it is weighted by; see `records.account.Account`."""

    open: str
    stage: str = ""
    gpus: int = 0
    run: str = ""
    attempt: int = -1
    nodes: int = 0
    is_anew: bool = False
    """Another run than the account's has begun."""


def stand(cluster: Cluster, account: Account | None) -> Standing:
    """How the run stands; `account` is as far as it is written."""
    plan = cluster.plan or attached_run(cluster)
    if plan is None:
        return _without_plan(cluster, account)
    run = run_of(cluster, plan)
    if plan.state in TERMINAL and (waiting := _of_another_run(cluster, plan)):
        is_anew = account is not None and account.run != ""
        return Standing(Category.QUEUED.value, gpus=waiting, is_anew=is_anew)
    is_other = account is not None and account.run not in ("", run)
    known = None if is_other else account
    opened, phase = _open(cluster, plan, known)
    incident = _dealt_with(cluster, plan)
    before = 0 if known is None else known.nodes
    return Standing(
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


def _without_plan(cluster: Cluster, account: Account | None) -> Standing:
    """Before the first attempt; or the store was emptied, and it goes on as it was."""
    if account is not None and account.run == ATTACHED and is_attached(cluster):
        return Standing(CLOSED, run=ATTACHED, attempt=account.attempt, nodes=account.nodes)
    if account is not None and account.run:
        return Standing(
            account.open,
            account.stage,
            account.gpus,
            account.run,
            account.attempt,
            account.nodes,
        )
    waiting = sum(agent.slots for agent in cluster.waiting())
    return Standing(Category.QUEUED.value, gpus=waiting)


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
