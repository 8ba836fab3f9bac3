"""What the leader writes, given what it reads: one step of reconciliation at a time.

`decide` looks at the cluster and answers with the writes that bring the plan closer to what should
be. It keeps no truth of its own: a new leader that reads the same cluster goes on where the old
one stopped. Files and clocks are asked through `Circumstances`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from holdfast_sidecar.coordination.keys import Section
from holdfast_sidecar.coordination.reports import (
    AgentReport,
    Candidate,
    Incident,
    Member,
    Plan,
    decode,
    encode,
)
from holdfast_sidecar.decisions import formation, restart
from holdfast_sidecar.decisions.blame import Blame, find_culprit, signature
from holdfast_sidecar.decisions.cluster import CURRENT, Cluster
from holdfast_sidecar.findings import Finding, Kind
from holdfast_sidecar.settings import Settings

TERMINAL = frozenset({"done", "stopped"})

EXIT_BAD_INPUT = 2

FINISHED = 1
"""page.Ending.FINISHED, as a RankReport carries it."""


@dataclass(frozen=True)
class Write:
    """A guarded write: done only if the field still holds `expected`."""

    section: Section
    field: str
    value: str | None
    expected: str | None


@dataclass(frozen=True)
class Circumstances:
    """What a decision needs beside the cluster. Times: `now` monotonic, `now_unix_s` wall clock."""

    epoch: int
    now: float
    now_unix_s: float
    settings: Settings
    plan_seen: Plan | None = None
    """The newest plan this leader ever saw: an emptied server gets it back."""
    settled: bool = True
    """False for a moment after leadership or server changed: reports may still be on their way."""
    forming_for_s: float = 0.0
    """How long enough nodes for a first attempt have been waiting."""
    evidence_for_s: float = 0.0
    """How long the plan has been in `evidence`."""
    candidates: tuple[Candidate, ...] | None = None
    """Checkpoints to resume from, newest first; None when not looked up yet."""
    new_identifier: str = ""
    """A fresh identifier for an incident, should one be needed."""
    majority: bool = False
    """Behind Sentinel more than half of the last attempt's nodes must be here to decide."""


@dataclass(frozen=True)
class Outcome:
    """Writes to do in this order (a refused one ends the round), and what to look up first."""

    writes: tuple[Write, ...] = ()
    needs_candidates: bool = False
    waiting: str = ""
    """Why nothing happens yet, for people."""
    forming: bool = field(default=False)
    """Enough nodes are here for a first attempt: the last call is running."""


def decide(cluster: Cluster, circumstances: Circumstances) -> Outcome:
    """One step for the plan."""
    plan = cluster.plan
    if plan is None:
        return _without_plan(cluster, circumstances)
    if plan.state in TERMINAL:
        return _begin(cluster, circumstances, after=plan)
    if (stop := _asked_to_stop(cluster)) is not None:
        return _write_plan(cluster, _stopped(plan, circumstances, 0, stop))
    if plan.state == "running":
        return _watch(cluster, plan, circumstances)
    if plan.state == "evidence":
        return _await_evidence(cluster, plan, circumstances)
    return _reform(cluster, plan, circumstances)


def is_fresh(cluster: Cluster, plan_seen: Plan | None) -> bool:
    """Nobody has ever heard of an attempt, so no plan can have been lost: start at once."""
    return (
        plan_seen is None
        and all(node.floor_attempt < 0 for node in cluster.nodes.values())
        and all(agent.attempt < 0 and not agent.plan for agent in cluster.agents.values())
    )


def _without_plan(cluster: Cluster, circumstances: Circumstances) -> Outcome:
    if not circumstances.settled:
        return Outcome(waiting="waiting for every node's report")
    known = [circumstances.plan_seen, *_plans_obeyed(cluster)]
    if plans := [plan for plan in known if plan is not None]:
        newest = max(plans, key=lambda plan: (plan.attempt, plan.epoch))
        return _write_plan(cluster, newest)
    return _begin(cluster, circumstances, after=None)


def _plans_obeyed(cluster: Cluster) -> list[Plan]:
    texts = {agent.plan for agent in cluster.agents.values() if agent.plan}
    return [plan for text in texts if (plan := decode(Plan, text)) is not None]


def _begin(cluster: Cluster, circumstances: Circumstances, after: Plan | None) -> Outcome:
    """A run's first attempt. Spares left over from a run that ended know less than its end."""
    ended = -1 if after is None else after.attempt
    joining = [agent for agent in _joining(cluster) if agent.attempt >= ended]
    if not joining:
        return Outcome(waiting="no node has joined yet")
    floor = max((node.floor_attempt for node in cluster.nodes.values()), default=-1)
    attempt = max(floor, ended, *(agent.attempt for agent in joining)) + 1
    enough = len(joining) >= joining[0].min_nodes
    formed = formation.form(joining, (), frozenset(), 0, circumstances.forming_for_s)
    outcome = _open(cluster, formed, attempt, None, circumstances)
    return dataclasses.replace(outcome, forming=enough)


def _watch(cluster: Cluster, plan: Plan, circumstances: Circumstances) -> Outcome:
    if all(_has_succeeded(cluster, plan, member) for member in plan.members):
        done = dataclasses.replace(plan, state="done", epoch=circumstances.epoch)
        return _write_plan(cluster, done)
    if (lost := _lost_members(cluster, plan, circumstances.now_unix_s)) is not None:
        return _end(cluster, plan, lost, circumstances)
    members = [_agent_of(cluster, member) for member in plan.members]
    of_attempt = [a for a in members if a is not None and a.attempt == plan.attempt]
    if any(agent.state == "failed" for agent in of_attempt):
        return _end(cluster, plan, _crash(cluster, plan, circumstances), circumstances)
    if strays := [a.node for a in of_attempt if a.state == "joining"]:
        why = Incident("", plan.attempt, "agent_restarted", min(strays), confidence=0.9)
        return _end(cluster, plan, why, circumstances)
    if (hang := _hang(cluster, plan)) is not None:
        return _gather_evidence(cluster, plan, hang, circumstances)
    if _may_grow(cluster, plan, circumstances.settings):
        return _end(cluster, plan, Incident("", plan.attempt, "grow"), circumstances)
    return Outcome(writes=_recoveries(cluster, plan, circumstances))


def _await_evidence(cluster: Cluster, plan: Plan, circumstances: Circumstances) -> Outcome:
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
    writes = list(_write_plan(cluster, ended).writes)
    incident = cluster.incidents.get(plan.incident)
    if incident is not None:
        kept = [] if timed_out else [m.node for m in plan.members if m.node not in missing]
        stamped = dataclasses.replace(
            incident, ended_unix_s=circumstances.now_unix_s, evidence=[*incident.evidence, *kept]
        )
        writes.append(_amend(cluster, stamped))
    return Outcome(tuple(writes))


def _reform(cluster: Cluster, plan: Plan, circumstances: Circumstances) -> Outcome:
    """After an end: wait until the living are down, name the culprit, restart or stop."""
    joining = _joining(cluster)
    awaited = frozenset(
        member.node
        for member in plan.members
        if cluster.is_alive(member.node)
        and (agent := cluster.agents[member.node]).incarnation == member.incarnation
        and agent.state != "joining"
    )
    if awaited:
        return Outcome(waiting=f"waiting for {', '.join(sorted(awaited))} to end its ranks")
    incident = _final(cluster, plan, circumstances)
    earlier = [i for i in cluster.incidents.values() if i.identifier != incident.identifier]
    cap = _cap(cluster, circumstances.settings)
    verdict = restart.decide(
        incident, earlier, cap, circumstances.settings.policy, circumstances.now_unix_s
    )
    if isinstance(verdict, restart.Stop):
        stopped = _stopped(plan, circumstances, verdict.exit_code, verdict.message)
        stamped = dataclasses.replace(incident, decided="stop")
        return Outcome((*_write_plan(cluster, stopped).writes, _amend(cluster, stamped)))
    if circumstances.now_unix_s < plan_not_before(incident, verdict.pause_s):
        return Outcome(waiting=f"backing off {verdict.pause_s:g} s after {incident.cause}")
    needed = len(plan.members) // 2 + 1 if circumstances.majority else 0
    patience = circumstances.settings.policy.join_timeout_s
    if circumstances.now_unix_s > plan_not_before(incident, verdict.pause_s) + patience:
        message = f"{len(joining)} nodes came back within {patience:g} s, too few to go on"
        return _write_plan(cluster, _stopped(plan, circumstances, restart.EXIT_FAILED, message))
    formed = formation.form(joining, plan.members, awaited, needed, 0.0)
    reopened = dataclasses.replace(
        incident, decided="restart", reopened_unix_s=circumstances.now_unix_s
    )
    return _open(cluster, formed, plan.attempt + 1, reopened, circumstances)


def plan_not_before(incident: Incident, pause: float) -> float:
    """When a restart may be opened, wall clock."""
    return (incident.ended_unix_s or incident.detected_unix_s) + pause


def _open(
    cluster: Cluster,
    formed: formation.Formation | formation.Waiting | formation.Mismatch,
    attempt: int,
    incident: Incident | None,
    circumstances: Circumstances,
) -> Outcome:
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
        return _write_plan(cluster, refused)
    if circumstances.candidates is None:
        return Outcome(needs_candidates=True)
    counted = incident is not None and incident.cause not in restart.PLANNED
    earlier = cluster.plan.restarts if cluster.plan is not None and incident is not None else 0
    plan = Plan(
        attempt=attempt,
        epoch=circumstances.epoch,
        state="running",
        members=list(formed.members),
        world_size=formed.world_size,
        resume=list(circumstances.candidates),
        restarts=earlier + int(counted),
    )
    writes = list(_write_plan(cluster, plan).writes)
    if incident is not None and incident.identifier:
        writes.append(_amend(cluster, incident))
    return Outcome(tuple(writes))


def _end(cluster: Cluster, plan: Plan, incident: Incident, circumstances: Circumstances) -> Outcome:
    """End the attempt now: its ranks are dead or worthless already."""
    return _close(cluster, plan, incident, "ended", circumstances)


def _gather_evidence(
    cluster: Cluster, plan: Plan, incident: Incident, circumstances: Circumstances
) -> Outcome:
    return _close(cluster, plan, incident, "evidence", circumstances)


def _close(
    cluster: Cluster, plan: Plan, incident: Incident, state: str, circumstances: Circumstances
) -> Outcome:
    now = circumstances.now_unix_s
    ranks = cluster.ranks(plan)
    recorded = dataclasses.replace(
        incident,
        identifier=circumstances.new_identifier,
        since_unix_s=incident.since_unix_s or now,
        detected_unix_s=now,
        ended_unix_s=now if state == "ended" else 0.0,
        step_reached=max((rank.step for rank in ranks.values()), default=0),
    )
    closed = dataclasses.replace(
        plan,
        epoch=circumstances.epoch,
        state=state,
        incident=recorded.identifier,
        cause=recorded.cause,
        culprit_node=recorded.culprit_node,
        culprit_ranks=recorded.culprit_ranks,
    )
    record = Write(Section.INCIDENTS, recorded.identifier, encode(recorded), None)
    return Outcome((*_write_plan(cluster, closed).writes, record))


def _recoveries(cluster: Cluster, plan: Plan, circumstances: Circumstances) -> tuple[Write, ...]:
    """Incidents that are over: every rank of the new attempt has made a step."""
    ranks = cluster.ranks(plan)
    if len(ranks) < plan.world_size:
        return ()
    if not all(rank.step > rank.resumed_step for rank in ranks.values()):
        return ()
    resumed = max(rank.resumed_step for rank in ranks.values())
    return tuple(
        _amend(
            cluster,
            dataclasses.replace(
                incident, recovered_unix_s=circumstances.now_unix_s, step_resumed=resumed
            ),
        )
        for incident in cluster.incidents.values()
        if incident.decided == "restart"
        and not incident.recovered_unix_s
        and incident.attempt < plan.attempt
    )


def _lost_members(cluster: Cluster, plan: Plan, now_unix_s: float) -> Incident | None:
    gone = [m for m in plan.members if _agent_of(cluster, m) is None]
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
        evidence=[f"nothing was heard of it for {silent_s:.1f} s"] if silent_s else [],
    )


def _crash(cluster: Cluster, plan: Plan, circumstances: Circumstances) -> Incident:
    blame = _blame(cluster, plan)
    if blame is None:
        return Incident("", plan.attempt, "crash", since_unix_s=circumstances.now_unix_s)
    rank = cluster.ranks(plan).get(blame.rank)
    return Incident(
        "",
        plan.attempt,
        "crash",
        blame.node,
        [blame.rank],
        blame.confidence,
        since_unix_s=blame.exit.at_unix_s,
        signature=signature(blame, rank.step if rank is not None else 0),
    )


def _hang(cluster: Cluster, plan: Plan) -> Incident | None:
    """A finding that is sure enough to act on; the surest names the culprit."""
    acting: list[Finding] = [
        finding
        for member in plan.members
        if (node := cluster.nodes.get(member.node)) is not None
        and node.attempt == plan.attempt
        and node.mode == "act"
        for finding in node.findings
        if finding.acts and finding.kind in (Kind.HANG, Kind.STALL)
    ]
    if not acting:
        return None
    surest = max(acting, key=lambda finding: finding.confidence)
    return Incident(
        "",
        plan.attempt,
        surest.kind.value,
        surest.node,
        list(surest.ranks),
        surest.confidence,
        since_unix_s=surest.since_unix_s,
        evidence=list(surest.evidence),
    )


def _final(cluster: Cluster, plan: Plan, circumstances: Circumstances) -> Incident:
    """The incident with what has become known since: later exits, a node that never came back."""
    incident = cluster.incidents.get(plan.incident) or Incident(
        plan.incident,
        plan.attempt,
        plan.cause or "unknown",
        detected_unix_s=circumstances.now_unix_s,
    )
    if incident.cause not in ("crash", "node_lost", "node_left"):
        return incident
    if (lost := _lost_members(cluster, plan, circumstances.now_unix_s)) is not None:
        return dataclasses.replace(
            incident,
            cause=lost.cause,
            culprit_node=lost.culprit_node,
            culprit_ranks=lost.culprit_ranks,
            confidence=lost.confidence,
            signature="",
        )
    if incident.cause == "crash" and (blame := _blame(cluster, plan)) is not None:
        return dataclasses.replace(
            incident,
            culprit_node=blame.node,
            culprit_ranks=[blame.rank],
            confidence=blame.confidence,
            since_unix_s=min(blame.exit.at_unix_s, incident.detected_unix_s),
            signature=signature(blame, incident.step_reached),
            evidence=[blame.exit.message] if blame.exit.message else incident.evidence,
        )
    return incident


def _blame(cluster: Cluster, plan: Plan) -> Blame | None:
    return find_culprit(
        (member.node, exit_)
        for member in plan.members
        if (agent := cluster.agents.get(member.node)) is not None
        and agent.incarnation == member.incarnation
        and agent.attempt == plan.attempt
        for exit_ in agent.exits
    )


def _joining(cluster: Cluster) -> list[AgentReport]:
    return [
        agent
        for agent in cluster.agents.values()
        if agent.state == "joining" and cluster.is_alive(agent.node)
    ]


def _agent_of(cluster: Cluster, member: Member) -> AgentReport | None:
    """The living agent that holds this place; None when it is gone or is another one by now."""
    agent = cluster.agents.get(member.node)
    if agent is None or agent.incarnation != member.incarnation:
        return None
    return agent if cluster.is_alive(member.node) else None


def newcomers(cluster: Cluster, plan: Plan) -> list[AgentReport]:
    """Nodes that wait while there is room for them (spares wait, too, but there is none)."""
    inside = {member.node for member in plan.members}
    outside = [agent for agent in _joining(cluster) if agent.node not in inside]
    room = outside[0].max_nodes - len(plan.members) if outside else 0
    return outside[: max(room, 0)]


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
        and saved.requested_by == "grow"
        and saved.state != "armed"
    )


def _has_succeeded(cluster: Cluster, plan: Plan, member: Member) -> bool:
    """All ranks of this place ended well.

    torchrun's own agent just leaves after a success, so then the ranks' pages say it.
    """
    agent = cluster.agents.get(member.node)
    if agent is None or agent.incarnation != member.incarnation or agent.attempt != plan.attempt:
        return False
    if agent.state == "succeeded":
        return True
    node = cluster.nodes.get(member.node)
    return (
        agent.state == "left"
        and node is not None
        and node.attempt == plan.attempt
        and len(node.ranks) == member.slots
        and all(rank.ending == FINISHED for rank in node.ranks)
    )


def _asked_to_stop(cluster: Cluster) -> str | None:
    return next(
        (f"asked for by {r.by}" for r in cluster.requests.values() if r.kind == "stop"), None
    )


def _cap(cluster: Cluster, settings: Settings) -> int:
    caps = [a.max_restarts for a in cluster.agents.values() if a.max_restarts is not None]
    return min(caps) if caps else settings.policy.max_restarts


def _stopped(plan: Plan, circumstances: Circumstances, exit_code: int, message: str) -> Plan:
    return dataclasses.replace(
        plan, state="stopped", epoch=circumstances.epoch, exit_code=exit_code, message=message
    )


def _write_plan(cluster: Cluster, plan: Plan) -> Outcome:
    return Outcome((Write(Section.PLAN, CURRENT, encode(plan), cluster.plan_text),))


def _amend(cluster: Cluster, incident: Incident) -> Write:
    known = cluster.incident_texts.get(incident.identifier)
    return Write(Section.INCIDENTS, incident.identifier, encode(incident), known)
