"""A run's first attempt, and the opening of any."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from holdfast_sidecar.decisions import formation, restart
from holdfast_sidecar.decisions.admission import awaits_words, with_unfit
from holdfast_sidecar.decisions.choosing import choose, trusted_below
from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.decisions.divergence import add_skip, describe_skip
from holdfast_sidecar.decisions.outcome import (
    Circumstances,
    Outcome,
    Write,
    amend,
    stopped_over,
    write_plan,
)
from holdfast_sidecar.decisions.quarantine import bearable, is_kept_out, lasting
from holdfast_sidecar.decisions.requeueing import carried
from holdfast_sidecar.decisions.snapshot_source import find_snapshot
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.plan import STORY, Incident, Plan
from holdfast_sidecar.records.reports import AgentReport

EXIT_BAD_INPUT = 2


def is_fresh(cluster: Cluster, plan_seen: Plan | None) -> bool:
    """Nobody has ever heard of an attempt, so no plan can have been lost: start at once."""
    return (
        plan_seen is None
        and all(node.floor_attempt < 0 for node in cluster.nodes.values())
        and all(agent.attempt < 0 and not agent.plan for agent in cluster.agents.values())
    )


def given_back(cluster: Cluster, circumstances: Circumstances) -> Outcome | None:
    """A plan that the store lost, as it was; None: it has lost none.

    Nothing is decided anew, so nothing of it is counted again.
    """
    if cluster.plan is not None:
        later = _superseding(cluster, cluster.plan, circumstances)
        return None if later is None else write_plan(cluster, later)
    if not circumstances.settled:
        return Outcome(waiting="waiting for every node's report")
    plans = _known_plans(cluster, circumstances)
    if not plans:
        return None
    newest = max(plans, key=lambda plan: (plan.attempt, plan.epoch))
    if (slow := _slow_to_report(cluster, newest)) and not circumstances.out_of_patience:
        return Outcome(waiting=f"waiting for the launchers of {', '.join(slow)} to report")
    return write_plan(cluster, newest)


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


def _superseding(cluster: Cluster, plan: Plan, circumstances: Circumstances) -> Plan | None:
    """A plan that was obeyed after this one: the store lost it in a failover, and all who obeyed
    it refuse this one, or have ended their ranks for it. None when there is none, as is usual."""
    later = [
        known
        for known in _known_plans(cluster, circumstances)
        if known.epoch >= plan.epoch and _place(known) > _place(plan)
    ]
    return max(later, key=_place, default=None)


def _place(plan: Plan) -> tuple[int, int, int]:
    """Which of two plans is the later one: within an attempt they go one way only."""
    stage = {"running": 0, "evidence": 1, "ended": 2}.get(plan.state, 3)
    return plan.attempt, plan.epoch, stage


def begin(cluster: Cluster, circumstances: Circumstances, after: Plan | None) -> Outcome:
    """A run's first attempt.

    Whoever is left over from a run that ended does not count: its spares know less than its end,
    its members have just not heard of it yet.
    """
    ended = -1 if after is None else after.attempt
    leaving = set() if after is None else {member.incarnation for member in after.members}
    willing = [
        agent
        for agent in cluster.waiting()
        if agent.attempt >= ended and agent.incarnation not in leaving
    ]
    heard = [agent for agent in cluster.at_hand(()) if agent.node not in cluster.unheard]
    able = [agent for agent in willing if agent in heard]
    cluster = _with_minimum(cluster, able, circumstances)
    fit = [agent for agent in willing if agent in cluster.willing()]
    outside = cluster.outside()
    joining = [agent for agent in fit if not is_kept_out(agent, outside)]
    if willing and (stop := cluster.asked_to_stop()) is not None:
        refused = Plan(
            next_attempt(cluster, willing, ended), circumstances.epoch, "stopped", message=stop
        )
        return write_plan(cluster, refused)
    if unheard := awaits_words(cluster, willing):
        return Outcome(waiting=unheard, forming=_are_enough(able))
    formed = formation.form(joining, (), circumstances.forming_for_s)
    formed = with_unfit(formed, cluster, willing)
    attempt = next_attempt(cluster, willing, ended)
    outcome = open_attempt(cluster, formed, attempt, None, circumstances)
    return dataclasses.replace(outcome, forming=_are_enough(able) or bool(able and not joining))


def _are_enough(agents: Sequence[AgentReport]) -> bool:
    return bool(agents) and len(agents) >= agents[0].min_nodes


def _with_minimum(
    cluster: Cluster, willing: Sequence[AgentReport], circumstances: Circumstances
) -> Cluster:
    """What an earlier run kept outside stays there, unless it is needed once the last call is over:
    until then others may come."""
    plan, now = cluster.plan, circumstances.now_unix_s
    if plan is None or not plan.outside or not willing:
        return cluster
    outside = lasting(plan.outside, now, cluster.agents, cluster.nodes)
    if circumstances.forming_for_s >= willing[0].last_call_s:
        outside = bearable(outside, willing, willing[0].min_nodes)
    return dataclasses.replace(cluster, plan=dataclasses.replace(plan, outside=outside))


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
        kept = incident and stopped_over(incident, formed.message)
        return Outcome((*_noted(cluster, kept), *write_plan(cluster, refused).writes))
    snapshot = find_snapshot(cluster, formed.members, incident)
    if circumstances.candidates is None:
        return Outcome(
            needs_candidates=True,
            world_size=formed.world_size,
            has_snapshot=snapshot is not None,
        )
    below = math.inf if cluster.plan is None else trusted_below(cluster, cluster.plan, incident)
    choice = choose(circumstances.candidates, incident, below, snapshot)
    if obstacle := circumstances.unresumable or choice.obstacle:
        # To start from nothing would throw the job's work away: that is for people to decide.
        lost = Plan(
            attempt,
            circumstances.epoch,
            "stopped",
            exit_code=restart.EXIT_FAILED,
            message=obstacle,
        )
        kept = incident and stopped_over(incident, obstacle)
        return Outcome((*_noted(cluster, kept), *write_plan(cluster, lost).writes))
    if snapshot is not None:
        is_last = bool(circumstances.candidates) and not choice.candidates
        snapshot = dataclasses.replace(snapshot, is_last=is_last)
    counted = incident is not None and incident.cause not in restart.PLANNED
    before = cluster.plan if incident is not None else None
    outside = cluster.outside()
    goes_on = incident is not None or bool(choice.candidates)  # else the data begins anew, too
    skips = cluster.plan.skips if cluster.plan is not None and goes_on else []
    resumed = choice.candidates[0].step if choice.candidates else 0
    passed_over = add_skip(skips, incident, resumed, circumstances.settings)
    note = choice.note + describe_skip(skips, passed_over)
    plan = Plan(
        attempt=attempt,
        epoch=circumstances.epoch,
        state="running",
        members=list(formed.members),
        world_size=formed.world_size,
        resume=[*([] if snapshot is None else [snapshot]), *choice.candidates],
        message=story(incident, note) if counted and incident is not None else "",
        restarts=(before.restarts if before is not None else 0) + int(counted),
        began_unix_s=before.began_unix_s if before is not None else circumstances.now_unix_s,
        outside=lasting(outside, circumstances.now_unix_s, cluster.agents, cluster.nodes),
        skips=passed_over,
        hooks=[] if cluster.plan is None else cluster.plan.hooks,
        first_attempt=attempt if before is None else before.first_attempt,
        requeues=(
            carried(cluster, formed.members, circumstances.requeued)
            if before is None
            else before.requeues
        ),
    )
    writes = (*_noted(cluster, incident), *write_plan(cluster, plan).writes)
    return Outcome(writes, abandoned=choice.abandoned, abandoned_for=choice.note)


def _noted(cluster: Cluster, incident: Incident | None) -> tuple[Write, ...]:
    """What is decided about an incident. It is written before the plan, or a leader that dies in
    between leaves a restart that no budget counts; written twice it does no harm."""
    return (amend(cluster, incident),) if incident is not None and incident.identifier else ()


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
    told = f"{incident.cause}{where}{reason} ({sure}); {STORY}{incident.identifier}"
    return f"{told}; {note}" if note else told
