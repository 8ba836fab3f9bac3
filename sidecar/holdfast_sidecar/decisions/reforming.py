"""After an attempt was called off: keep the evidence, name the culprit, then restart or stop."""

from __future__ import annotations

import dataclasses

from holdfast_sidecar.coordination.reports import Incident, Plan
from holdfast_sidecar.decisions import formation, restart
from holdfast_sidecar.decisions.beginning import next_attempt, open_attempt
from holdfast_sidecar.decisions.blame import describe, signature
from holdfast_sidecar.decisions.choosing import onset_in
from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.decisions.losses import (
    agent_of,
    blame_exits,
    lost_members,
    too_few_to_decide,
)
from holdfast_sidecar.decisions.outcome import (
    Circumstances,
    Outcome,
    amend,
    stopped,
    write_plan,
)
from holdfast_sidecar.settings import Settings


def await_evidence(cluster: Cluster, plan: Plan, circumstances: Circumstances) -> Outcome:
    """Nothing is ended before every living node kept what would die, or the time for it is over."""
    missing = [
        member.node
        for member in plan.members
        if cluster.is_alive(member.node)
        and (node := cluster.nodes.get(member.node)) is not None
        and node.evidence_for != plan.incident
    ]
    timed_out = circumstances.evidence_for_s > circumstances.settings.policy.evidence_timeout_s
    if missing and not timed_out:
        return Outcome(waiting=f"waiting for evidence from {', '.join(sorted(missing))}")
    ended = dataclasses.replace(plan, state="ended", epoch=circumstances.epoch)
    writes = list(write_plan(cluster, ended).writes)
    incident = cluster.incidents.get(plan.incident)
    if incident is not None:
        kept = [n.node for n in cluster.nodes.values() if n.evidence_for == plan.incident]
        stamped = dataclasses.replace(incident, ended_unix_s=circumstances.now_unix_s, kept_by=kept)
        writes.append(amend(cluster, stamped))
    return Outcome(tuple(writes))


def reform(cluster: Cluster, plan: Plan, circumstances: Circumstances) -> Outcome:
    """After an end: wait until the living are down, name the culprit, restart or stop."""
    joining = cluster.joining()
    awaited = sorted(
        member.node
        for member in plan.members
        if cluster.is_alive(member.node)
        and (agent := cluster.agents[member.node]).incarnation == member.incarnation
        and agent.state != "joining"
    )
    if awaited:
        return Outcome(waiting=f"waiting for {', '.join(awaited)} to end its ranks")
    if few := too_few_to_decide(cluster, plan, circumstances.majority):
        return Outcome(waiting=few)
    incident = _final(cluster, plan, circumstances)
    if plan.incident and plan.incident not in cluster.incidents:
        # Whoever ended the attempt died before it wrote this down: pauses count from now on.
        return Outcome((amend(cluster, incident),))
    earlier = [i for i in cluster.incidents.values() if i.identifier != incident.identifier]
    cap = _cap(cluster, circumstances.settings)
    verdict = restart.decide(
        incident,
        earlier,
        plan.restarts,
        cap,
        circumstances.settings.policy,
        circumstances.now_unix_s,
    )
    if isinstance(verdict, restart.Stop):
        refused = stopped(plan, circumstances, verdict.exit_code, verdict.message)
        stamped = dataclasses.replace(incident, decided="stop")
        return Outcome((*write_plan(cluster, refused).writes, amend(cluster, stamped)))
    if circumstances.now_unix_s < plan_not_before(incident, verdict.pause_s):
        return Outcome(waiting=f"backing off {verdict.pause_s:g} s after {incident.cause}")
    formed = formation.form(joining, plan.members, 0.0)
    patience = circumstances.settings.policy.join_timeout_s
    is_late = circumstances.now_unix_s > plan_not_before(incident, verdict.pause_s) + patience
    if is_late and isinstance(formed, formation.Waiting):
        message = f"{len(joining)} nodes came back within {patience:g} s, too few to go on"
        return write_plan(cluster, stopped(plan, circumstances, restart.EXIT_FAILED, message))
    reopened = dataclasses.replace(
        incident, decided="restart", reopened_unix_s=circumstances.now_unix_s
    )
    attempt = next_attempt(cluster, joining, plan.attempt)
    return open_attempt(cluster, formed, attempt, reopened, circumstances)


def plan_not_before(incident: Incident, pause: float) -> float:
    """When a restart may be opened, wall clock."""
    return (incident.ended_unix_s or incident.detected_unix_s) + pause


def _final(cluster: Cluster, plan: Plan, circumstances: Circumstances) -> Incident:
    """The incident with what has become known since: later exits, a node that never came back."""
    incident = cluster.incidents.get(plan.incident) or Incident(
        plan.incident,
        plan.attempt,
        plan.cause or "unknown",
        detected_unix_s=circumstances.now_unix_s,
    )
    if incident.onset_step < 0 and (onset := onset_in(cluster, plan)) >= 0:
        incident = dataclasses.replace(incident, onset_step=onset)
    incident = dataclasses.replace(incident, step_reached=step_reached(cluster, plan, incident))
    if incident.cause not in ("crash", "node_lost", "node_left"):
        return incident
    if (lost := lost_members(cluster, plan, circumstances.now_unix_s)) is not None:
        return dataclasses.replace(
            incident,
            cause=lost.cause,
            culprit_node=lost.culprit_node,
            culprit_ranks=lost.culprit_ranks,
            confidence=lost.confidence,
            signature="",
            evidence=lost.evidence,
        )
    if incident.cause == "crash" and (blame := blame_exits(cluster, plan)) is not None:
        return dataclasses.replace(
            incident,
            culprit_node=blame.node,
            culprit_ranks=[blame.rank],
            confidence=blame.confidence,
            since_unix_s=min(blame.exit.at_unix_s, incident.detected_unix_s),
            signature=signature(blame),
            evidence=[f"rank {blame.rank}: {describe(blame.exit)}"],
        )
    return incident


def step_reached(cluster: Cluster, plan: Plan, incident: Incident) -> int:
    """Steps that all ranks had completed when the attempt ended: what has to be done again counts
    from there.

    Launchers read it from the pages of dead ranks. Of ranks that were lost with their node nothing
    later than their last report is known: then those that are left speak, which may count one step
    too many as lost, and never one too few.
    """
    steps = [
        step
        for member in plan.members
        if (agent := agent_of(cluster, member)) is not None and agent.attempt == plan.attempt
        for step in agent.steps.values()
    ]
    return min(steps, default=incident.step_reached)


def _cap(cluster: Cluster, settings: Settings) -> int:
    caps = [a.max_restarts for a in cluster.agents.values() if a.max_restarts is not None]
    return min(caps) if caps else settings.policy.max_restarts
