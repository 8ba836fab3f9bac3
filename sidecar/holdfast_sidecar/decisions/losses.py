"""Who of an attempt's members is gone, and whose exit began it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

from holdfast_sidecar.config.settings import SidecarSettings
from holdfast_sidecar.decisions import fault_time
from holdfast_sidecar.decisions.blame import MAY_BE_VICTIM, Blame, find_culprit, weight
from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.decisions.quarantine import part_of
from holdfast_sidecar.records.findings import Kind
from holdfast_sidecar.records.plan import Incident, Member, Plan
from holdfast_sidecar.records.reports import AgentReport, Exit, RankReport

WAITING = frozenset({"backward", "communicating"})
"""Phases in which a rank waits for others."""

NO_MAJORITY = "not more than half"
SHOWN = 4
"""Nodes of which it is told that they cannot reach another: what they have in common shows."""


def lost_members(cluster: Cluster, plan: Plan, now_unix_s: float) -> Incident | None:
    """The loss of members, as an incident; None while all are there."""
    gone = gone_members(cluster, plan)
    if not gone:
        return None
    first = gone[0]
    ranks = [rank for member in gone for rank in member.ranks]
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
        since_unix_s=fault_time.of_lost_node(silent_s, now_unix_s),
        evidence=[how_lost(cluster, first.node, silent_s, went)],
    )


def gone_members(cluster: Cluster, plan: Plan) -> list[Member]:
    """Members that are gone and whose ranks had not all ended well: those that had are not
    missed."""
    return [
        member
        for member in plan.members
        if agent_of(cluster, member) is None and not has_succeeded(cluster, plan, member)
    ]


def is_only_silent(cluster: Cluster, member: Member) -> bool:
    """Whether nothing but silence says that this member is gone: nobody saw its launcher end."""
    agent = cluster.agents.get(member.node)
    if agent is None or agent.incarnation != member.incarnation or agent.state == "left":
        return False
    return member.node in cluster.lost and member.node not in cluster.ended


def may_yet_step(
    cluster: Cluster, plan: Plan, gone: Sequence[Member], silent_s: float, settings: SidecarSettings
) -> bool:
    """Whether a step may still show that nodes live of which nothing else is heard.

    Heartbeats and round trips often share a link. Steps use another one, but have to be completed
    and told: a step that began after the silence lies within two of them, and is known a tick and
    a beat later. Where a node is really gone, its peers stop in a collective: once all of them have
    waited there for as long as a whole step takes, none will come. Where no step was ever made with
    these nodes it can't speak, and ranks that are seen may well be at work.
    """
    longest_s = max(settings.unwitnessed_timeout_s, settings.node_timeout_s)
    peers = _peers(cluster, plan)
    if not cluster.stepped_with & {member.node for member in gone}:
        return bool(peers) and silent_s < longest_s
    step_s = max((rank.step_s for rank in peers), default=0.0)
    told_s = settings.tick_s + settings.heartbeat_s
    due_s = 2 * (step_s + told_s) + settings.heartbeat_s
    waited_s = max(min(step_s, longest_s), settings.heartbeat_s)
    return silent_s < due_s and not (peers and _do_wait(peers, waited_s))


def may_be_at_work(cluster: Cluster, plan: Plan, settings: SidecarSettings) -> bool:
    """Whether ranks of the nodes that are heard do anything but wait for others."""
    return not _do_wait(_peers(cluster, plan), settings.unwitnessed_timeout_s)


def _do_wait(ranks: Iterable[RankReport], for_s: float) -> bool:
    """Whether all of them have waited for others so long."""
    return all(rank.phase in WAITING and rank.phase_age_s >= for_s for rank in ranks)


def _peers(cluster: Cluster, plan: Plan) -> list[RankReport]:
    """Living ranks of the members that the store hears of."""
    unheard = cluster.lost.keys() | cluster.cut_off.keys()
    here = {rank for m in plan.members if m.node not in unheard for rank in m.ranks}
    ranks = cluster.ranks(plan).values()
    return [r for r in ranks if r.rank in here and r.alive and not r.has_finished]


def has_succeeded(cluster: Cluster, plan: Plan, member: Member) -> bool:
    """All ranks of this place ended well.

    torchrun's own agent just leaves after a success, and a node may be reclaimed before its
    launcher says anything, so then the ranks' pages say it.
    """
    agent = cluster.agents.get(member.node)
    if agent is None or agent.incarnation != member.incarnation or agent.attempt != plan.attempt:
        return False
    if agent.state == "succeeded":
        return True
    node = cluster.nodes.get(member.node)
    return (
        not cluster.is_alive(member.node)
        and node is not None
        and node.attempt == plan.attempt
        and len(node.ranks) == member.slots
        and all(rank.has_finished for rank in node.ranks)
    )


def how_lost(cluster: Cluster, node: str, silent_s: float, went: bool = False) -> str:
    """What the judgement that a node is gone rests on."""
    if went:
        agent = cluster.agents.get(node)
        by = f", by {agent.left_for}" if agent is not None and agent.left_for else ""
        return f"its launcher was told to end{by}"
    sidecar = cluster.nodes.get(node)
    if node in cluster.ended or (sidecar is not None and not sidecar.launcher_alive):
        return "its sidecar saw the launcher end"
    if cluster.is_alive(node):
        return "its launcher is gone, another one runs there now"
    return f"nothing was heard of it for {silent_s:.1f} s"


def too_few_to_decide(cluster: Cluster, plan: Plan, majority: bool) -> str:
    """Why this side may not decide about missing nodes; empty when it may.

    Behind Sentinel the others may sit with a master of their own, so more than half of the
    attempt's nodes must be here: spares don't count, and a tie waits for a person.
    """
    here = sum(
        cluster.is_alive(member.node) and member.node not in cluster.cut_off
        for member in plan.members
    )
    if not majority or 2 * here > len(plan.members):
        return ""
    return f"{here} of the attempt's {len(plan.members)} nodes are here, {NO_MAJORITY}"


def unreachable_store(cluster: Cluster, plan: Plan) -> Incident | None:
    """Members that cannot reach the attempt's store, once it is known of all how they fared.

    Of two nodes nobody can tell which one is cut off; of more the one that is alone with it is.
    """
    first, *others = sorted(plan.members, key=lambda member: member.node_rank)
    agents = {member.node: agent_of(cluster, member) for member in plan.members}
    away = [m for m in others if (a := agents[m.node]) and a.unreachable_in == plan.attempt]
    there = [m for m in others if (a := agents[m.node]) and a.attempt == plan.attempt]
    if not away or len({m.node for m in (*away, *there)}) < len(others):
        return None
    alone = None
    if len(others) > 1:
        alone = first if not there else away[0] if len(away) == 1 else None
    evidence = [
        f"{member.node} cannot reach the attempt's store at {agent.unreachable} of {first.node}"
        for member in away[:SHOWN]
        if (agent := agents[member.node]) is not None
    ]
    return Incident(
        "",
        plan.attempt,
        "unreachable",
        "" if alone is None else alone.node,
        [] if alone is None else list(alone.ranks),
        confidence=0.5 if alone is None else 0.8,
        evidence=evidence,
        is_of_surroundings=True,  # a firewall or a wrong interface; no script is at work yet
    )


def agent_of(cluster: Cluster, member: Member) -> AgentReport | None:
    """The living agent that holds this place; None when it is gone or is another one by now."""
    agent = cluster.agents.get(member.node)
    if agent is None or agent.incarnation != member.incarnation:
        return None
    return agent if cluster.is_alive(member.node) else None


def part_of_node(cluster: Cluster, node: str) -> str:
    """The machine of a node, by which it is kept outside; empty: nobody is to blame."""
    agent = cluster.agents.get(node)
    return "" if agent is None else part_of(agent, cluster.agents.values())


def blame_exits(cluster: Cluster, plan: Plan) -> Blame | None:
    """The likely first cause among the exits that the members report."""
    return find_culprit(_exits(cluster, plan))


def blame_deaths(cluster: Cluster, plan: Plan) -> Blame | None:
    """The same, with what only sidecars know of so far: deaths that launchers can't reap yet, and
    ranks that have said which exception ends them, and those that left while others went on."""
    reaped = list(_exits(cluster, plan))
    known = {exit_.rank for _, exit_ in reaped}
    seen = [
        *deaths_seen(cluster, plan),
        *_exceptions_said(cluster, plan),
        *_leavers_seen(cluster, plan),
    ]
    return find_culprit([*reaped, *((node, e) for node, e in seen if e.rank not in known)])


def began_to_fail(cluster: Cluster, plan: Plan) -> bool:
    """Whether a sidecar saw a rank die that did not just lose a peer.

    Who lost a peer may be out of the door before the peer is; its launcher will say so, too, and
    by then it is known whose fault it was.
    """
    return any(weight(exit_) > MAY_BE_VICTIM for _, exit_ in deaths_seen(cluster, plan))


def deaths_seen(cluster: Cluster, plan: Plan) -> list[tuple[str, Exit]]:
    """Ranks of a running attempt that died by themselves, as their sidecars saw it.

    Once the attempt is ended the others die by order, which sidecars can't tell apart. So do those
    of a launcher that leaves.
    """
    return [
        (member.node, _as_exit(report, finding.since_unix_s))
        for member in plan.members
        if (node := cluster.nodes.get(member.node)) is not None and node.attempt == plan.attempt
        if not _leaves(cluster, member)
        for finding in node.findings
        if finding.kind is Kind.CRASH and finding.acts
        for report in node.ranks
        if report.rank in finding.ranks and report.exit_code
    ]


def _leaves(cluster: Cluster, member: Member) -> bool:
    agent = cluster.agents.get(member.node)
    return agent is not None and agent.incarnation == member.incarnation and agent.leaves


def _leavers_seen(cluster: Cluster, plan: Plan) -> list[tuple[str, Exit]]:
    return [
        (member.node, _as_exit(report, float("inf")))
        for member in plan.members
        if (node := cluster.nodes.get(member.node)) is not None and node.attempt == plan.attempt
        for report in node.ranks
        if report.has_left
    ]


def _exceptions_said(cluster: Cluster, plan: Plan) -> list[tuple[str, Exit]]:
    return [
        (member.node, _as_exit(dataclasses.replace(report, exit_code=1), float("inf")))
        for member in plan.members
        if (node := cluster.nodes.get(member.node)) is not None and node.attempt == plan.attempt
        for report in node.ranks
        if report.alive and report.exception
    ]


def crash_evidence(cluster: Cluster, plan: Plan, rank: int) -> list[str]:
    """What the sidecar of this rank found about its end."""
    return [
        line
        for member in plan.members
        if (node := cluster.nodes.get(member.node)) is not None and node.attempt == plan.attempt
        for finding in node.findings
        if finding.kind is Kind.CRASH and rank in finding.ranks
        for line in finding.evidence
    ]


def _as_exit(report: RankReport, at_unix_s: float) -> Exit:
    return Exit(
        rank=report.rank,
        local_rank=report.local_rank,
        pid=report.pid,
        exit_code=report.exit_code or 0,
        at_unix_s=at_unix_s,
        order=0,
        message=report.exception,
        step=report.step,
        onset_step=report.onset_step,
        is_gloo_alone=report.is_gloo_alone,
    )


def exits_of(cluster: Cluster, plan: Plan) -> list[Exit]:
    """How the members' ranks of this attempt ended, as far as they have."""
    return [exit_ for _, exit_ in _exits(cluster, plan)]


def _exits(cluster: Cluster, plan: Plan) -> Iterator[tuple[str, Exit]]:
    for member in plan.members:
        agent = cluster.agents.get(member.node)
        if agent is not None and agent.incarnation == member.incarnation:
            yield from ((member.node, e) for e in agent.exits if agent.attempt == plan.attempt)
