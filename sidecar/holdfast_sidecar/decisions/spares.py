"""Who waits, and could take a node's place. Pure."""

from __future__ import annotations

from holdfast_sidecar.decisions.admission import verdict_on
from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.decisions.formation import alike
from holdfast_sidecar.decisions.losses import agent_of
from holdfast_sidecar.records.formatting import natural_order
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.records.reports import AgentReport


def find_spares(cluster: Cluster, plan: Plan, node: str) -> list[AgentReport]:
    """Nodes that wait, could sit in this one's place, and that their health gates find fit."""
    seated = [agent for m in plan.members if (agent := agent_of(cluster, m)) is not None]
    wanted = next((agent for agent in seated if agent.node == node), None)
    members = {member.node for member in plan.members}
    if wanted is None:
        return []
    waiting = [
        agent
        for agent in alike(cluster.joining(), seated)
        if agent.node not in members and agent.slots == wanted.slots and _has_passed(agent, cluster)
    ]
    return sorted(waiting, key=lambda agent: natural_order(agent.node))


def _has_passed(agent: AgentReport, cluster: Cluster) -> bool:
    """A stopgap or an unchecked node may be worse than one that is slow."""
    if agent.node in cluster.unfit or agent.node in cluster.unchecked:
        return False
    verdict = verdict_on(agent, cluster)
    return verdict is None or verdict.state == "fit"
