"""What a restart that somebody is about to ask for would go on from, foretold for those who ask.

The leader decides it anew when the attempt is over: this is told before anything is done.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from holdfast_sidecar.decisions import draining, formation
from holdfast_sidecar.decisions.choosing import onset_in
from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.decisions.pausing import RESTART
from holdfast_sidecar.decisions.snapshot_source import find_snapshot
from holdfast_sidecar.records.plan import Candidate, Incident, Member, Plan, Request


def goes_on_from(cluster: Cluster, node: str = "") -> Candidate | None:
    """The snapshot in memory; None: there can't be one. `node`: is to be kept outside by then.

    A node that is kept outside lives, and gives what it has in memory to the one in its place. To
    go on with another number of ranks it has to be written down first: that may fail, so it is not
    foretold.
    """
    plan = cluster.plan
    if plan is None or not (members := next_members(cluster, plan, node)):
        return None
    wish = Incident("", plan.attempt, RESTART, onset_step=onset_in(cluster, plan))
    if sum(member.slots for member in members) != plan.world_size:
        return None
    # What the nodes have now is of steps a little apart, and of the same ones once they stopped.
    there = find_snapshot(cluster, plan.members, wish)
    if there is not None and _listen(cluster, _moved(plan.members, members)):
        return there
    found = find_snapshot(cluster, members, wish)
    return found if found is not None and _listen(cluster, found.fetches.values()) else None


def next_members(cluster: Cluster, plan: Plan, node: str) -> tuple[Member, ...]:
    """Who would be in the next attempt if this one ended now; nobody: too few would be left."""
    wishes = [Request("", draining.DRAIN, "", 0.0, node=node)] if node else []
    outside = draining.as_asked(plan.outside, wishes, cluster.agents.values())
    ended = {
        name: dataclasses.replace(agent, state="joining") if cluster.is_alive(name) else agent
        for name, agent in cluster.agents.items()
    }
    plan = dataclasses.replace(plan, outside=outside)
    later = dataclasses.replace(cluster, plan=plan, agents=ended)
    formed = formation.form(later.joining(), plan.members, 0.0)
    return formed.members if isinstance(formed, formation.Formation) else ()


def _moved(before: Iterable[Member], now: Iterable[Member]) -> set[str]:
    """Nodes of which the ranks will be on others."""
    return {member.node for member in before} - {member.node for member in now}


def _listen(cluster: Cluster, nodes: Iterable[str]) -> bool:
    """Whether others can fetch from all of these."""
    reports = [cluster.nodes.get(node) for node in nodes]
    return all(one and one.snapshot and one.snapshot.peer_address for one in reports)
