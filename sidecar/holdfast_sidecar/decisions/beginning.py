"""A run's first attempt, and the opening of any."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from holdfast_sidecar.coordination.reports import AgentReport, Incident, Plan, decode
from holdfast_sidecar.decisions import formation, restart
from holdfast_sidecar.decisions.choosing import choose
from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.decisions.outcome import Circumstances, Outcome, amend, write_plan
from holdfast_sidecar.decisions.snapshot_source import find_snapshot

EXIT_BAD_INPUT = 2


def is_fresh(cluster: Cluster, plan_seen: Plan | None) -> bool:
    """Nobody has ever heard of an attempt, so no plan can have been lost: start at once."""
    return (
        plan_seen is None
        and all(node.floor_attempt < 0 for node in cluster.nodes.values())
        and all(agent.attempt < 0 and not agent.plan for agent in cluster.agents.values())
    )


def without_plan(cluster: Cluster, circumstances: Circumstances) -> Outcome:
    """The store holds no plan: give an emptied one its plan back, or begin."""
    if not circumstances.settled:
        return Outcome(waiting="waiting for every node's report")
    if plans := _known_plans(cluster, circumstances):
        newest = max(plans, key=lambda plan: (plan.attempt, plan.epoch))
        if (slow := _slow_to_report(cluster, newest)) and not circumstances.out_of_patience:
            return Outcome(waiting=f"waiting for the launchers of {', '.join(slow)} to report")
        return write_plan(cluster, newest)
    return begin(cluster, circumstances, after=None)


def _slow_to_report(cluster: Cluster, plan: Plan) -> list[str]:
    """Members whose launcher lives, as its sidecar says, and has not been heard since the store
    was emptied: under the plan they would count as lost."""
    return sorted(
        member.node
        for member in plan.members
        if member.node not in cluster.agents
        and (node := cluster.nodes.get(member.node)) is not None
        and node.launcher_alive
    )


def superseding(cluster: Cluster, plan: Plan, circumstances: Circumstances) -> Plan | None:
    """A plan that was obeyed after this one: the store lost it in a failover, and all who obeyed
    it refuse this one. None when there is no such plan, as is usual."""
    later = [
        known
        for known in _known_plans(cluster, circumstances)
        if (known.attempt, known.epoch) != (plan.attempt, plan.epoch)
        and known.attempt >= plan.attempt
        and known.epoch >= plan.epoch
    ]
    return max(later, key=lambda known: (known.attempt, known.epoch), default=None)


def begin(cluster: Cluster, circumstances: Circumstances, after: Plan | None) -> Outcome:
    """A run's first attempt.

    Whoever is left over from a run that ended does not count: its spares know less than its end,
    its members have just not heard of it yet.
    """
    ended = -1 if after is None else after.attempt
    leaving = set() if after is None else {member.incarnation for member in after.members}
    joining = [
        agent
        for agent in cluster.joining()
        if agent.attempt >= ended and agent.incarnation not in leaving
    ]
    if not joining:
        return Outcome(waiting="no node has joined yet")
    if (stop := cluster.asked_to_stop()) is not None:
        refused = Plan(
            next_attempt(cluster, joining, ended), circumstances.epoch, "stopped", message=stop
        )
        return write_plan(cluster, refused)
    enough = len(joining) >= joining[0].min_nodes
    formed = formation.form(joining, (), circumstances.forming_for_s)
    attempt = next_attempt(cluster, joining, ended)
    outcome = open_attempt(cluster, formed, attempt, None, circumstances)
    return dataclasses.replace(outcome, forming=enough)


def next_attempt(cluster: Cluster, joining: Sequence[AgentReport], ended: int) -> int:
    """One more than any that someone has heard of."""
    floor = max((node.floor_attempt for node in cluster.nodes.values()), default=-1)
    return max(floor, ended, *(agent.attempt for agent in joining)) + 1


def open_attempt(
    cluster: Cluster,
    formed: formation.Formation | formation.Waiting | formation.Mismatch,
    attempt: int,
    incident: Incident | None,
    circumstances: Circumstances,
) -> Outcome:
    """Write the plan of the next attempt, or say why there is none yet."""
    if isinstance(formed, formation.Waiting):
        return Outcome(waiting=formed.reason)
    if isinstance(formed, formation.Mismatch):
        refused = Plan(
            attempt,
            circumstances.epoch,
            "stopped",
            exit_code=EXIT_BAD_INPUT,
            message=formed.message,
        )
        return write_plan(cluster, refused)
    snapshot = find_snapshot(cluster, formed.members, incident)
    if circumstances.candidates is None:
        return Outcome(
            needs_candidates=True,
            world_size=formed.world_size,
            has_snapshot=snapshot is not None,
        )
    choice = choose(circumstances.candidates, incident)
    if obstacle := circumstances.unresumable or choice.obstacle:
        # To start from nothing would throw the job's work away: that is for people to decide.
        lost = Plan(
            attempt,
            circumstances.epoch,
            "stopped",
            exit_code=restart.EXIT_FAILED,
            message=obstacle,
        )
        writes = list(write_plan(cluster, lost).writes)
        if incident is not None and incident.identifier:
            kept = dataclasses.replace(incident, decided="stop", reopened_unix_s=0.0)
            writes.append(amend(cluster, kept))
        return Outcome(tuple(writes))
    counted = incident is not None and incident.cause not in restart.PLANNED
    before = cluster.plan if incident is not None else None
    plan = Plan(
        attempt=attempt,
        epoch=circumstances.epoch,
        state="running",
        members=list(formed.members),
        world_size=formed.world_size,
        resume=[*([] if snapshot is None else [snapshot]), *choice.candidates],
        message=story(incident, choice.note) if counted and incident is not None else "",
        restarts=(before.restarts if before is not None else 0) + int(counted),
        began_unix_s=before.began_unix_s if before is not None else circumstances.now_unix_s,
    )
    writes = list(write_plan(cluster, plan).writes)
    if incident is not None and incident.identifier:
        writes.append(amend(cluster, incident))
    return Outcome(tuple(writes), abandoned=choice.abandoned, abandoned_for=choice.note)


def _known_plans(cluster: Cluster, circumstances: Circumstances) -> list[Plan]:
    """What this leader saw, and what the launchers obey."""
    texts = {agent.plan for agent in cluster.agents.values() if agent.plan}
    known = [circumstances.plan_seen, *(decode(Plan, text) for text in texts)]
    return [plan for plan in known if plan is not None]


def story(incident: Incident, note: str = "") -> str:
    """Why the attempt before was ended, in one line, for the console; then the note."""
    where = f" on node {incident.culprit_node}" if incident.culprit_node else ""
    reason = f": {incident.evidence[0]}" if incident.evidence else ""
    sure = f"{incident.confidence:.0%} sure"
    told = f"{incident.cause}{where}{reason} ({sure}); holdfast explain {incident.identifier}"
    return f"{told}; {note}" if note else told
