"""Who of an attempt's members is gone, and whose exit began it."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.coordination.reports import AgentReport, Exit, Incident, Member, Plan
from holdfast_sidecar.decisions.blame import Blame, find_culprit
from holdfast_sidecar.decisions.cluster import Cluster


def lost_members(cluster: Cluster, plan: Plan, now_unix_s: float) -> Incident | None:
    """The loss of members, as an incident; None while all are there."""
    gone = [m for m in plan.members if agent_of(cluster, m) is None]
    if not gone:
        return None
    first = gone[0]
    ranks = [rank for m in gone for rank in range(m.first_rank, m.first_rank + m.slots)]
    agent = cluster.agents.get(first.node)
    went = agent is not None and agent.state == "left" and agent.incarnation == first.incarnation
    cause = "node_left" if went else "node_lost"
    silent_s = cluster.lost.get(first.node, 0.0)
    return Incident(
        "",
        plan.attempt,
        cause,
        first.node,
        ranks,
        confidence=0.95,
        since_unix_s=now_unix_s - silent_s,
        evidence=[_how_lost(cluster, first.node, went, silent_s)],
    )


def _how_lost(cluster: Cluster, node: str, went: bool, silent_s: float) -> str:
    if went:
        return "its launcher was told to end"
    sidecar = cluster.nodes.get(node)
    if sidecar is not None and not sidecar.launcher_alive:
        return "its sidecar saw the launcher end"
    return f"nothing was heard of it for {silent_s:.1f} s"


def too_few_to_decide(cluster: Cluster, plan: Plan, majority: bool) -> str:
    """Why this side may not decide about missing nodes; empty when it may.

    Behind Sentinel the others may sit with a master of their own, so more than half of the
    attempt's nodes must be here: spares don't count, and a tie waits for a person.
    """
    here = sum(cluster.is_alive(member.node) for member in plan.members)
    if not majority or 2 * here > len(plan.members):
        return ""
    return f"{here} of the attempt's {len(plan.members)} nodes are here, not more than half"


def agent_of(cluster: Cluster, member: Member) -> AgentReport | None:
    """The living agent that holds this place; None when it is gone or is another one by now."""
    agent = cluster.agents.get(member.node)
    if agent is None or agent.incarnation != member.incarnation:
        return None
    return agent if cluster.is_alive(member.node) else None


def blame_exits(cluster: Cluster, plan: Plan) -> Blame | None:
    """The likely first cause among the exits that the members report."""
    return find_culprit(_exits(cluster, plan))


def exits_of(cluster: Cluster, plan: Plan) -> list[Exit]:
    """How the members' ranks of this attempt ended, as far as they have."""
    return [exit_ for _, exit_ in _exits(cluster, plan)]


def _exits(cluster: Cluster, plan: Plan) -> Iterator[tuple[str, Exit]]:
    for member in plan.members:
        agent = cluster.agents.get(member.node)
        if agent is not None and agent.incarnation == member.incarnation:
            yield from ((member.node, e) for e in agent.exits if agent.attempt == plan.attempt)
