"""A scheduler wants nodes back, or its time limit is near: save first, then go on without, or stop.

Whoever was asked says so and gives itself a deadline; nothing here has to be in time for it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass

from holdfast_sidecar.config.settings import PolicySettings
from holdfast_sidecar.policy.blame import agent_of, has_succeeded
from holdfast_sidecar.policy.budget import EXIT_REQUEUE
from holdfast_sidecar.policy.checkpoint_choice import onset_in, trusted_now
from holdfast_sidecar.policy.checkpoint_order import (
    Shipment,
    last_step,
    newest_shipment,
    obstacle,
    soonest_s,
)
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.policy.formation import alike
from holdfast_sidecar.records.checkpoint import CheckpointOrder
from holdfast_sidecar.records.plan import Incident, Plan

ASKED_BY = "preempt"
"""In an order: what it is for, where a person's request has an identifier."""

SPREAD_S = 1.0
"""A scheduler that wants the whole job back signals all nodes; by then the last has heard of it."""

LAST_S = 2.0
"""Before the deadline: the plan must be written and heard of while the nodes are still there."""

TIME_LIMIT = "time limit"


@dataclass(frozen=True)
class PreemptionState:
    """Members that were asked to go."""

    nodes: tuple[str, ...]
    why: str
    left_s: float
    """Until the first of them is gone."""
    is_whole: bool
    """The job can't go on without them."""


@dataclass(frozen=True)
class PreemptionSave:
    """How the checkpoint that was made for it stands."""

    is_over: bool
    words: str


def find(
    cluster: Cluster, plan: Plan, settings: PolicySettings, waited_s: float
) -> PreemptionState | None:
    """Who of this attempt's members was asked to go; None: nobody. `waited_s`: for how long so."""
    if left_s := limit_near(cluster, plan, settings):
        # The nodes of an allocation end together.
        nodes = tuple(member.node for member in plan.members)
        return PreemptionState(nodes, TIME_LIMIT, left_s, is_whole=True)
    asked = {
        member.node: (reason, grace_s)
        for member in plan.members
        if not has_succeeded(cluster, plan, member)
        if (told := _asked(cluster, plan, member.node, settings)) is not None
        for reason, grace_s in [told]
    }
    if not asked:
        return None
    reasons = sorted({reason for reason, _ in asked.values()})
    return PreemptionState(
        tuple(sorted(asked)),
        ", ".join(reasons),
        min(grace_s for _, grace_s in asked.values()) - waited_s,
        is_whole=_left_over(cluster, plan, asked.keys()) < _fewest(cluster, plan),
    )


def is_asked(cluster: Cluster) -> bool:
    """Whether some launcher's node is wanted back."""
    return any(agent.preempted_by for agent in cluster.agents.values())


def limit_near(cluster: Cluster, plan: Plan, settings: PolicySettings) -> float:
    """What the first member has left of its time, if that is so little that the job must be saved;
    else 0.

    A job that can't be saved uses its time to the end.
    """
    agents = [agent for m in plan.members if (agent := agent_of(cluster, m)) is not None]
    left_s = min((a.left_s for a in agents if a.left_s), default=0.0)
    ranks = cluster.ranks(plan).values()
    if not left_s or not ranks or not all(rank.state_registered for rank in ranks):
        return 0.0
    return left_s if left_s <= margin_s(cluster, plan, settings) else 0.0


def margin_s(cluster: Cluster, plan: Plan, settings: PolicySettings) -> float:
    """How long before a time limit the job is saved: what the ranks take to a moment at which they
    can be saved, which with gathered gradients may be minutes, and what writing takes."""
    return soonest_s(cluster.ranks(plan)) + writing_s(cluster, settings)


def writing_s(cluster: Cluster, settings: PolicySettings) -> float:
    """How long writing may take: a floor, and twice what it took last time."""
    saved = (node.saved.seconds for node in cluster.nodes.values() if node.saved is not None)
    return settings.time_limit_margin_s + 2 * max(saved, default=0.0)


def wants(cluster: Cluster, plan: Plan) -> Shipment | bool:
    """What to save by now: True for a checkpoint; where the ranks don't get to its step (they
    evaluate, say, or are still starting again) the newest snapshot there is; False: what is under
    way, or nothing more."""
    order = cluster.checkpoint
    if order is None or not is_for_it(order, plan) or order.came_too_late:
        can_go_there = not obstacle(plan, cluster.ranks(plan))
        return can_go_there or _unsaved(cluster, plan) or True
    if order.state != "void" or order.writers:
        return False
    return _unsaved(cluster, plan) or False


def _unsaved(cluster: Cluster, plan: Plan) -> Shipment | None:
    """The newest snapshot of all ranks, if no checkpoint has what it holds."""
    ranks = cluster.ranks(plan)
    below = trusted_now(plan, ranks.values(), onset_in(cluster, plan))
    found = newest_shipment(plan, cluster.nodes, cluster.is_alive, below)
    saved = last_step(cluster.ledger.values(), plan, ranks)
    return None if found is None or found.step <= saved else found


def patience_s(mode: str, left_s: float, writing_s: float) -> float:
    """How long ranks may take to the step: with snapshots there is another way, if time is left for
    writing the newest: what that takes, and no more than half."""
    return max(left_s / 2, left_s - writing_s) if mode == "snapshot" else left_s - LAST_S


def is_for_it(order: CheckpointOrder, plan: Plan) -> bool:
    """Whether an order was given because members of this attempt must go."""
    return order.attempt == plan.attempt and ASKED_BY in order.answers


def judge(
    preemption: PreemptionState, cluster: Cluster, plan: Plan, waited_s: float
) -> PreemptionSave:
    """Whether there is still something to wait for."""
    order = cluster.checkpoint
    is_late = preemption.left_s <= LAST_S
    if order is None or not is_for_it(order, plan):
        return PreemptionSave(is_late, "there was no time for a checkpoint")
    if order.state == "complete":
        spread = waited_s >= SPREAD_S or preemption.is_whole
        return PreemptionSave(spread or is_late, f"the checkpoint of step {order.step} is complete")
    if order.state != "void":
        return PreemptionSave(
            is_late, f"the checkpoint of step {order.step} was not complete in time"
        )
    is_final = is_late or wants(cluster, plan) is False
    return PreemptionSave(is_final, f"there is no checkpoint of step {order.step}: {order.reason}")


def conclude(
    preemption: PreemptionState, saved: PreemptionSave, plan: Plan
) -> tuple[Plan, Incident]:
    """The plan without these nodes, or the job's end, and the incident it is remembered by."""
    message = f"preempted ({preemption.why} on {', '.join(preemption.nodes)}): {saved.words}"
    incident = Incident(
        "",
        plan.attempt,
        "preempted",
        preemption.nodes[0],
        confidence=1.0,
        decided="stop" if preemption.is_whole else "",
        evidence=[message],
    )
    ended = dataclasses.replace(plan, message=message)
    if preemption.is_whole:
        return dataclasses.replace(ended, state="stopped", exit_code=EXIT_REQUEUE), incident
    return dataclasses.replace(ended, state="ended"), incident


def _asked(
    cluster: Cluster, plan: Plan, node: str, settings: PolicySettings
) -> tuple[str, float] | None:
    """Why a member has to go, and within how long: as its launcher says, or, under torchrun, as its
    ranks were told."""
    agent, sidecar = cluster.agents.get(node), cluster.nodes.get(node)
    if agent is not None and agent.preempted_by:
        return agent.preempted_by, agent.grace_s
    if sidecar is not None and sidecar.preempted_by and sidecar.attempt == plan.attempt:
        return sidecar.preempted_by, settings.preemption_grace_s
    return None


def _left_over(cluster: Cluster, plan: Plan, asked: Collection[str]) -> int:
    """Nodes that could make the next attempt: members that stay, and spares like them."""
    seated = [a for m in plan.members if (a := agent_of(cluster, m)) is not None]
    staying = [agent for agent in seated if agent.node not in asked]
    names = {agent.node for agent in seated}
    spares = cluster.at_hand(cluster.outside())
    outside = [agent for agent in spares if agent.node not in names]
    return len(staying) + len(alike(outside, seated))


def _fewest(cluster: Cluster, plan: Plan) -> int:
    return max(
        (agent.min_nodes for m in plan.members if (agent := agent_of(cluster, m)) is not None),
        default=1,
    )
