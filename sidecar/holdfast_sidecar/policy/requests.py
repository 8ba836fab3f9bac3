"""Planned work: what people asked the leader for (pause, resume, restart) becomes part of the plan.

A pause is in the plan because everybody obeys that, it is fenced, and an emptied server gets it
back from the launchers. While it lasts nothing is done about faults, and no attempt is opened.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from holdfast_sidecar.policy import formation, quarantine
from holdfast_sidecar.policy.blame import too_few_to_decide
from holdfast_sidecar.policy.checkpoint_choice import find_snapshot, onset_in
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.policy.formation import with_hooks
from holdfast_sidecar.policy.outcome import Decision, DecisionContext, Write, write_plan
from holdfast_sidecar.policy.quarantine import lasting, let_in
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import Candidate, Incident, Member, PauseWindow, Plan, Request
from holdfast_sidecar.store.protocol import Section

RESTART = "restart"
"""Kind of request, and cause of the incident that it becomes."""

KINDS = frozenset({"pause", "resume", RESTART}) | quarantine.KINDS


def take_in(cluster: Cluster, plan: Plan, circumstances: DecisionContext) -> Decision | None:
    """Change the plan as was asked, and end what is over; None: it stays as it is."""
    if too_few_to_decide(cluster, plan, circumstances.majority):
        return None  # the others may have been asked for something else
    now = circumstances.now_unix_s
    changed = _without_what_is_over(cluster, plan, now)
    writes: list[Write] = []
    for request in _oldest_first(cluster):
        if request.kind == RESTART:
            writes += _answer(cluster, plan, request)
        elif request.kind == quarantine.DRAIN and (why := _not_drained(cluster, plan, request)):
            writes.append(_refuse(cluster, request, why))
        else:
            changed = _changed(cluster, changed, request, now)
            writes.append(_forget(cluster, request))
    changed = with_hooks(changed, cluster, circumstances)
    if changed != plan:
        changed = dataclasses.replace(changed, epoch=circumstances.epoch)
        writes = [*write_plan(cluster, changed).writes, *writes]
    return Decision(tuple(writes)) if writes else None


def is_met(cluster: Cluster, plan: Plan, request: Request) -> bool:
    """Whether a restart has come of it, or the job is being restarted anyway: ranks that start
    after it was asked for are what it wanted."""
    is_under_way = plan.state in ("evidence", "ended") and not request.node
    return is_under_way or request.identifier in cluster.incidents


def _answer(cluster: Cluster, plan: Plan, request: Request) -> list[Write]:
    """Forget a restart that has come about; say why another can't."""
    if is_met(cluster, plan, request):
        return [_forget(cluster, request)]
    if plan.state != "running" or not (why := obstacle(cluster, plan, request.node)):
        return []
    return [_refuse(cluster, request, why)]


def _not_drained(cluster: Cluster, plan: Plan, request: Request) -> str:
    """Why this node can't be kept outside."""
    if request.node not in cluster.agents:
        return f"there is no node {request.node} (there are: {', '.join(sorted(cluster.agents))})"
    if request.is_forced or not (why := too_few_without(cluster, plan, request.node)):
        return ""
    return f"{why}, and the next attempt would have to wait (--force drains it all the same)"


def obstacle(cluster: Cluster, plan: Plan, node: str) -> str:
    """Why the job can't be restarted without this node; empty: it can, or none was named."""
    members = {member.node for member in plan.members}
    if not node:
        return ""
    if node not in members:
        return f"node {node} is not in attempt {plan.attempt} (in it: {', '.join(sorted(members))})"
    return too_few_without(cluster, plan, node)


def too_few_without(cluster: Cluster, plan: Plan, node: str) -> str:
    """That the job could not go on without this node; empty: it could."""
    seated = {member.node for member in plan.members if cluster.is_alive(member.node)}
    waiting = {agent.node for agent in cluster.at_hand(cluster.outside())}
    kept_out = {one.node for one in plan.outside}
    seated_on = seated - kept_out - {node}
    left = (seated_on - cluster.never_again) | (waiting - {node})
    least = max((cluster.agents[name].min_nodes for name in seated), default=1)
    ill = ", ".join(sorted(seated_on & cluster.never_again))
    why = f"without node {node} too few are left: {len(left)}" + f" (unfit: {ill})" * bool(ill)
    return "" if len(left) >= least else why


def asked_to_restart(cluster: Cluster) -> Request | None:
    """The oldest wish for a restart that nothing has come of yet."""
    wishes = (r for r in _oldest_first(cluster) if r.kind == RESTART)
    return next((r for r in wishes if r.identifier not in cluster.incidents), None)


def planned(request: Request, plan: Plan) -> Incident:
    """The incident that a wished restart is: by its name the wish is known to be met."""
    why = f": {request.reason}" if request.reason else ""
    return Incident(
        request.identifier,
        plan.attempt,
        RESTART,
        request.node,
        confidence=1.0,
        evidence=[f"asked for by {request.by}{why}"],
    )


def why_paused(plan: Plan) -> str:
    """What is told while something waits for the end of the pause; empty: there is none."""
    if plan.pause is None:
        return ""
    why = f" ({plan.pause.reason})" if plan.pause.reason else ""
    return f"paused by {plan.pause.by}{why}"


def _without_what_is_over(cluster: Cluster, plan: Plan, now: float) -> Plan:
    kept = lasting(plan.outside, now, cluster.agents, cluster.nodes)
    plan = plan if kept == plan.outside else dataclasses.replace(plan, outside=kept)
    is_over = plan.pause is not None and now >= plan.pause.until_unix_s
    return _resumed(plan, now) if is_over else plan


def _resumed(plan: Plan, now: float) -> Plan:
    return dataclasses.replace(plan, pause=None, resumed_unix_s=now)


def _changed(cluster: Cluster, plan: Plan, request: Request, now: float) -> Plan:
    if request.kind in quarantine.KINDS:
        return quarantine.changed(plan, request, cluster.agents.values())
    if request.kind == "pause":
        pause = PauseWindow(request.by, request.reason, now, now + request.for_s)
        return dataclasses.replace(plan, pause=pause)
    if request.node:
        return dataclasses.replace(plan, outside=let_in(plan.outside, request.node))
    return plan if plan.pause is None else _resumed(plan, now)


def _oldest_first(cluster: Cluster) -> list[Request]:
    wanted = (r for r in cluster.requests.values() if r.kind in KINDS and not r.refused)
    return sorted(wanted, key=lambda request: (request.at_unix_s, request.identifier))


def _refuse(cluster: Cluster, request: Request, why: str) -> Write:
    text = cluster.request_texts[request.identifier]
    refused = encode(dataclasses.replace(request, refused=why))
    return Write(Section.REQUESTS, request.identifier, refused, text)


def _forget(cluster: Cluster, request: Request) -> Write:
    text = cluster.request_texts[request.identifier]
    return Write(Section.REQUESTS, request.identifier, None, text)


# What a restart that somebody is about to ask for would go on from, foretold for those who ask.
#
# The leader decides it anew when the attempt is over: this is told before anything is done.


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
    wishes = [Request("", quarantine.DRAIN, "", 0.0, node=node)] if node else []
    outside = quarantine.as_asked(plan.outside, wishes, cluster.agents.values())
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
