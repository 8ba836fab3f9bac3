"""An attempt under way: has it succeeded, failed, hung, or has someone come to join?"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.policy import hardware, modes, preemption, replacement, requeue, withheld
from holdfast_sidecar.policy.attached import BY_ORDER
from holdfast_sidecar.policy.blame import (
    ABORTED,
    OF_A_MISMATCH,
    VICTIM,
    agent_of,
    began_to_fail,
    blame_deaths,
    crash_evidence,
    exits_of,
    gone_members,
    has_succeeded,
    in_short,
    is_of_script,
    is_only_silent,
    lost_members,
    may_be_at_work,
    may_yet_step,
    mode_where_it_was,
    name_culprit,
    name_late,
    part_of_node,
    speaks_of_peer,
    too_few_to_decide,
    unreachable_store,
)
from holdfast_sidecar.policy.budget import EXIT_REQUEUE
from holdfast_sidecar.policy.checkpoint_choice import onset_in
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.policy.formation import alike
from holdfast_sidecar.policy.modes import mode_of_job
from holdfast_sidecar.policy.numbers import find_divergence
from holdfast_sidecar.policy.outcome import (
    Decision,
    DecisionContext,
    Write,
    amend,
    note_bundles,
    stopped,
    stopped_over,
    write_plan,
)
from holdfast_sidecar.policy.requests import asked_to_restart, next_members, planned, why_paused
from holdfast_sidecar.policy.signature import OF_WHOM, is_of_surroundings, sign
from holdfast_sidecar.records.plan import Incident, Member, Plan
from holdfast_sidecar.records.reports import OUTPUT_UNREAD, AgentReport

# A job that somebody ends by its launchers, all at once: Ctrl-C, or a scheduler. Pure.
#
# Its ranks die on one node before the other has heard of it, so that the one who only lost a peer
# looks like a crash. Nobody is left to recover, and what was opened for it is closed.

STOP = "stop"
"""Cause of what such an end left open, and what was decided about it."""

TOLD = "the launchers of all its nodes were told to end"


def is_interrupted(cluster: Cluster, plan: Plan) -> bool:
    """Whether every launcher of the attempt was told to end, and nobody waits to go on without."""
    agents = [(cluster.agents.get(member.node), member) for member in plan.members]
    are_told = all(
        agent is not None and agent.incarnation == member.incarnation and agent.leaves
        for agent, member in agents
    )
    return bool(agents) and are_told and not cluster.willing()


def closed_as_interruption(incident: Incident) -> Incident:
    """The incident, over with the job. A fault that was there before stays what it was."""
    if not _comes_of_it(incident):
        return dataclasses.replace(incident, decided=STOP)
    return dataclasses.replace(
        incident,
        cause=STOP,
        culprit_node="",
        culprit_ranks=[],
        culprit_part="",
        confidence=0.95,
        signature="",
        is_of_script=False,
        decided=STOP,
        evidence=[TOLD, *incident.evidence],
    )


def _comes_of_it(incident: Incident) -> bool:
    if incident.cause != "crash":
        return incident.cause == "node_left"
    if not incident.evidence or BY_ORDER.search(" ".join(incident.evidence)):
        return True
    if incident.signature.startswith(OUTPUT_UNREAD):
        return True  # what printed it was ended by the same hand
    # Not by sureness alone: the same error of their own makes ranks less sure each, and no victims.
    return incident.confidence <= VICTIM and any(map(_is_of_victim, incident.evidence))


def _is_of_victim(reason: str) -> bool:
    if OF_A_MISMATCH.search(reason):
        return False
    return ABORTED in reason or speaks_of_peer(OF_WHOM.sub("", reason))


def watch(cluster: Cluster, plan: Plan, circumstances: DecisionContext) -> Decision:
    """Look for a reason to end the attempt; there mostly is none."""
    if all(has_succeeded(cluster, plan, member) for member in plan.members):
        done = dataclasses.replace(plan, state="done", epoch=circumstances.epoch, message="")
        writes = (
            *withheld.overtaken(cluster, plan, circumstances.now_unix_s),
            *requeue.recoveries_at_end(cluster, plan, circumstances),
        )
        # Whoever reads that the job is done may leave at once, with the incidents as they are then.
        return Decision((*writes, *write_plan(cluster, done).writes))
    if plan.pause is not None:
        return _while_paused(cluster, plan, circumstances)
    if (lost := lost_members(cluster, plan, circumstances.now_unix_s)) is not None:
        if few := too_few_to_decide(cluster, plan, circumstances.majority):
            return Decision(waiting=few)
        return _without_lost(cluster, plan, lost, circumstances)
    members = [agent_of(cluster, member) for member in plan.members]
    of_attempt = [a for a in members if a is not None and a.attempt == plan.attempt]
    if _is_failing(cluster, plan):
        return _end_failed(cluster, plan, circumstances)
    if (incomplete := _incomplete(cluster, plan, of_attempt)) is not None:
        return _end(cluster, plan, incomplete, circumstances)
    if (leaving := preemption_of(cluster, plan, circumstances)) is not None:
        return _let_go(cluster, plan, leaving, circumstances)
    if (trouble := _trouble(cluster, plan, circumstances)) is not None:
        return _gather_evidence(cluster, plan, trouble, circumstances)
    if (wanted := _wanted(cluster, plan, circumstances.settings)) is not None:
        # A person may restart what hangs and is not acted on: then, too, evidence comes first.
        hangs = withheld.acting_findings(cluster, plan)
        return _close(cluster, plan, wanted, "evidence" if hangs else "ended", circumstances)
    return Decision(_noted(cluster, plan, circumstances))


def _is_failing(cluster: Cluster, plan: Plan) -> bool:
    """Whether some rank ended badly: no attempt goes on after that."""
    members = [agent_of(cluster, member) for member in plan.members]
    has_failed = any(
        agent is not None and (agent.attempt, agent.state) == (plan.attempt, "failed")
        for agent in members
    )
    return has_failed or began_to_fail(cluster, plan)


def _without_lost(
    cluster: Cluster, plan: Plan, lost: Incident, circumstances: DecisionContext
) -> Decision:
    """End the attempt for nodes that are gone. Where only their silence says so, its ranks may all
    be well: then not before it is clear that they stay away, and that the job can go on without."""
    gone, policy = gone_members(cluster, plan), circumstances.settings.policy
    if _is_failing(cluster, plan) or not all(is_only_silent(cluster, member) for member in gone):
        return _end(cluster, plan, lost, circumstances)
    if (leaving := preemption_of(cluster, plan, circumstances)) is not None:
        return _let_go(cluster, plan, leaving, circumstances)
    silent_s = min(cluster.lost[member.node] for member in gone)
    after, names = _next_members(cluster, plan), ", ".join(sorted(m.node for m in gone))
    is_late = silent_s >= policy.join_timeout_s
    if not after and is_late and not may_be_at_work(cluster, plan, circumstances.settings.sidecar):
        message = f"{names} silent for {silent_s:.0f} s, and too few nodes to go on without"
        refused = stopped(plan, circumstances, EXIT_REQUEUE, message)
        return _close(cluster, refused, stopped_over(lost, message), "stopped", circumstances)
    if not after:
        return Decision(waiting=f"{names} silent, and too few nodes are here to go on without")
    if len(after) < len(plan.members) and silent_s < policy.lost_act_after_s:
        return Decision(waiting=f"{names} silent, and no spare is ready")
    if may_yet_step(cluster, plan, gone, silent_s, circumstances.settings.sidecar):
        return Decision(waiting=f"{names} silent, and a step may yet be completed with all nodes")
    return _end(cluster, plan, lost, circumstances)


def _next_members(cluster: Cluster, plan: Plan) -> tuple[Member, ...]:
    """Who would be in the next attempt; who is cut off from the store can't join it."""
    lost = {**cluster.lost, **dict.fromkeys(cluster.cut_off, 0.0)}
    return next_members(dataclasses.replace(cluster, lost=lost), plan, "")


def _incomplete(cluster: Cluster, plan: Plan, of_attempt: Sequence[AgentReport]) -> Incident | None:
    """Why the attempt never comes about: its ranks wait for those of members that have none."""
    if strays := [agent.node for agent in of_attempt if agent.state == "joining"]:
        return Incident("", plan.attempt, "agent_restarted", min(strays), confidence=0.9)
    return unreachable_store(cluster, plan)


def _noted(cluster: Cluster, plan: Plan, circumstances: DecisionContext) -> tuple[Write, ...]:
    """What there is to write down while nothing has to be done."""
    if late := _blamed_late(cluster, plan):
        return late  # what else there is to note of them is noted next time
    return (
        *_recoveries(cluster, plan, circumstances),
        *withheld.record(cluster, plan, circumstances),
        *note_bundles(cluster),
    )


def _while_paused(cluster: Cluster, plan: Plan, circumstances: DecisionContext) -> Decision:
    """Nothing is done about faults; who must go has to go all the same."""
    if (leaving := preemption_of(cluster, plan, circumstances)) is not None:
        return _let_go(cluster, plan, leaving, circumstances)
    members = [agent_of(cluster, member) for member in plan.members]
    is_broken = any(
        agent is not None and agent.attempt == plan.attempt and agent.state in ("failed", "joining")
        for agent in members
    ) or bool(gone_members(cluster, plan))
    if is_broken or began_to_fail(cluster, plan):
        # What was withheld is not over by itself: its ranks are dead.
        return Decision(_recoveries(cluster, plan, circumstances), waiting=why_paused(plan))
    return Decision(
        (
            *_recoveries(cluster, plan, circumstances),
            *withheld.record(cluster, plan, circumstances),
        )
    )


def _wanted(cluster: Cluster, plan: Plan, settings: Settings) -> Incident | None:
    """An end that is nobody's fault: somebody asked for a restart, or nodes have come."""
    if (wish := asked_to_restart(cluster)) is not None:
        return planned(wish, plan)
    return Incident("", plan.attempt, "grow") if _may_grow(cluster, plan, settings) else None


def preemption_of(
    cluster: Cluster, plan: Plan, circumstances: DecisionContext
) -> preemption.PreemptionState | None:
    """Members that were asked to go."""
    return preemption.find(
        cluster,
        plan,
        circumstances.settings.policy,
        circumstances.preempted_for_s,
    )


def newcomers(cluster: Cluster, plan: Plan) -> list[AgentReport]:
    """Nodes that wait while there is room for them (spares wait, too, but there is none)."""
    inside = {member.node for member in plan.members}
    seated = [agent for m in plan.members if (agent := agent_of(cluster, m)) is not None]
    outside = alike([a for a in cluster.joining() if a.node not in inside], seated)
    room = outside[0].max_nodes - len(plan.members) if outside else 0
    return list(outside[: max(room, 0)])


def _may_grow(cluster: Cluster, plan: Plan, settings: Settings) -> bool:
    """Let newcomers in once the ranks are stepping, and have saved for it where they can."""
    if not newcomers(cluster, plan):
        return False
    ranks = cluster.ranks(plan)
    stepping = len(ranks) == plan.world_size and all(
        rank.step > rank.resumed_step for rank in ranks.values()
    )
    if not stepping:
        return False
    if not settings.checkpoint.dir or not all(r.state_registered for r in ranks.values()):
        return True
    saved = cluster.checkpoint
    return (
        saved is not None
        and saved.attempt == plan.attempt
        and "grow" in saved.answers
        and saved.state not in ("armed", "writing")
        and not saved.came_too_late
    )


def _end_failed(cluster: Cluster, plan: Plan, circumstances: DecisionContext) -> Decision:
    """Ranks are dead: of a fault of their own, or as one that lives had not arrived. That one still
    has a stack to keep."""
    crash = _crash(cluster, plan, circumstances)
    late = name_late(crash, cluster, plan, circumstances.now_unix_s)
    if late is not None:
        return _gather_evidence(cluster, plan, late, circumstances)
    return _end(cluster, plan, crash, circumstances)


def _crash(cluster: Cluster, plan: Plan, circumstances: DecisionContext) -> Incident:
    blame = blame_deaths(cluster, plan)
    if blame is None:
        return Incident("", plan.attempt, "crash", since_unix_s=circumstances.now_unix_s)
    began = modes.of_crash(blame.exit, cluster.ranks(plan).get(blame.rank))
    stepped = requeue.launch_had_stepped(cluster, plan, [blame.exit])
    return Incident(
        "",
        plan.attempt,
        "crash",
        blame.node,
        [blame.rank],
        blame.confidence,
        since_unix_s=min(began, circumstances.now_unix_s),
        evidence=crash_evidence(cluster, plan, blame.rank) or [in_short(blame)],
        signature=sign(blame, stepped),
        is_of_script=is_of_script(blame.exit),
        is_of_surroundings=is_of_surroundings(blame.exit, stepped),
    )


def _trouble(cluster: Cluster, plan: Plan, circumstances: DecisionContext) -> Incident | None:
    """What ranks that live are ended for: their hardware is ill (they may compute on, wrongly), one
    hangs, the numbers of all are wrong, or a spare would be faster than a node."""
    ill = [one for one in hardware.unanswered(cluster, plan) if one.mode == "act"]
    began_s = hardware.began_unix_s(cluster, plan)
    if (fault := hardware.name_fault(ill, plan, began_s)) is not None:
        return dataclasses.replace(fault, evidence=[*fault.evidence, hardware.STILL_RAN])
    if (hang := _hang(cluster, plan)) is not None:
        return hang
    settings = circumstances.settings
    diverged = find_divergence(cluster, plan, settings, circumstances.now_unix_s)
    if diverged is not None and mode_of_job(settings, diverged.cause) == "act":
        return diverged
    return replacement.due(cluster, plan, circumstances)


def _hang(cluster: Cluster, plan: Plan) -> Incident | None:
    """A finding that is sure enough to act on, where that may be."""
    found = withheld.acting_findings(cluster, plan)
    acting = [finding for finding, mode in found if mode == "act"]
    named = name_culprit(acting, cluster, plan)
    return named if named is not None and mode_where_it_was(named, cluster) == "act" else None


def _let_go(
    cluster: Cluster,
    plan: Plan,
    leaving: preemption.PreemptionState,
    circumstances: DecisionContext,
) -> Decision:
    """Once the job is saved, or can't be any more, go on without these nodes, or stop."""
    saved = preemption.judge(leaving, cluster, plan, circumstances.preempted_for_s)
    if not saved.is_over:
        nodes = ", ".join(leaving.nodes)
        return Decision(waiting=f"saving before {nodes} must go ({leaving.why})")
    closed, incident = preemption.conclude(leaving, saved, plan)
    return _close(cluster, closed, incident, closed.state, circumstances)


def _end(
    cluster: Cluster, plan: Plan, incident: Incident, circumstances: DecisionContext
) -> Decision:
    """End the attempt now: its ranks are dead or worthless already."""
    return _close(cluster, plan, incident, "ended", circumstances)


def _gather_evidence(
    cluster: Cluster, plan: Plan, incident: Incident, circumstances: DecisionContext
) -> Decision:
    return _close(cluster, plan, incident, "evidence", circumstances)


def _close(
    cluster: Cluster, plan: Plan, incident: Incident, state: str, circumstances: DecisionContext
) -> Decision:
    now = circumstances.now_unix_s
    ranks = cluster.ranks(plan)
    opened = dataclasses.replace(
        incident,
        identifier=incident.identifier or circumstances.new_identifier,
        since_unix_s=incident.since_unix_s or now,
        detected_unix_s=now,
    )
    recorded = dataclasses.replace(
        withheld.continued(cluster, plan, opened),
        culprit_part=part_of_node(cluster, incident.culprit_node),
        ended_unix_s=now if state == "ended" else 0.0,
        step_reached=max((rank.step for rank in ranks.values()), default=0),
        had_stepped=requeue.had_stepped(cluster, plan, exits_of(cluster, plan)),
        onset_step=incident.onset_step if incident.onset_step >= 0 else onset_in(cluster, plan),
    )
    if is_interrupted(cluster, plan):
        recorded = closed_as_interruption(recorded)
    closed = dataclasses.replace(
        plan,
        epoch=circumstances.epoch,
        state=state,
        incident=recorded.identifier,
        cause=recorded.cause,
        culprit_node=recorded.culprit_node,
        culprit_ranks=recorded.culprit_ranks,
    )
    # The plan says what is done, and so what the culprit did; the incident what is to blame for it.
    record = amend(cluster, hardware.explained(recorded, cluster, plan))
    overtaken = withheld.overtaken(cluster, plan, now, goes_on=recorded.identifier)
    late = _blamed_late(cluster, plan)
    return Decision((*write_plan(cluster, closed).writes, record, *overtaken, *late))


def _blamed_late(cluster: Cluster, plan: Plan) -> tuple[Write, ...]:
    """Incidents whose restart was opened before it was known that hardware was to blame."""
    under_way = (
        incident
        for incident in cluster.incidents.values()
        if incident.decided == "restart"
        and not incident.recovered_unix_s
        and incident.attempt < plan.attempt
    )
    return tuple(
        amend(cluster, better)
        for incident in under_way
        if (better := hardware.explained_late(incident, cluster, plan)) != incident
    )


def _recoveries(cluster: Cluster, plan: Plan, circumstances: DecisionContext) -> tuple[Write, ...]:
    """Incidents that are over: every rank of the new attempt has made a step, where steps are
    seen."""
    ranks = cluster.ranks(plan)
    is_whole = len(ranks) >= plan.world_size
    if not is_whole or not all(rank.step > rank.resumed_step for rank in ranks.values()):
        return requeue.recoveries(cluster, plan, circumstances)
    resumed = max(rank.resumed_step for rank in ranks.values())
    return tuple(
        amend(
            cluster,
            dataclasses.replace(
                incident,
                recovered_unix_s=circumstances.now_unix_s,
                step_resumed=resumed,
                # A rank may die between keeping a step in its snapshot and saying so in its page.
                step_reached=max(incident.step_reached, resumed),
            ),
        )
        for incident in cluster.incidents.values()
        if incident.decided == "restart"
        and not incident.recovered_unix_s
        and incident.attempt < plan.attempt
    )
