"""Which nodes are gone, cut off from the store, or run on without a sidecar. Pure.

A member of the attempt under way is lost only if every witness that could have spoken is silent:
the heartbeats of its launcher and its sidecar, steps completed elsewhere, round trips between
sidecars. What is done about a lost node is decided in `watching`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from holdfast_sidecar.config.settings import SidecarSettings
from holdfast_sidecar.decisions.cluster import UNRESPONSIVE_FACTOR, Cluster, beats
from holdfast_sidecar.decisions.liveness import ANY_GROUP, Heartbeats, Steps, StepTimes
from holdfast_sidecar.decisions.losses import how_lost
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.plan import TERMINAL, Member, Plan
from holdfast_sidecar.records.reports import AgentReport, LifeSign, NodeReport, RankReport
from holdfast_sidecar.records.steps import parse_groups

CONFIDENCE = 0.95
"""A node that is cut off from the store and from the other sidecars looks the same from here."""

SUSPECT_BEATS = 2.0
"""After so many heartbeats without one a node is asked closely: one that comes a little late makes
the leader look no more often, and half a second is left for rounds of questions."""

ROUNDS = 4
"""Rounds of questions without an answer, directly and through two others, that are silence."""

AT_ONCE_SHARE = 0.1
"""More nodes than this, and than one, that fall silent together: the way to the store first."""


@dataclass(frozen=True)
class Witnesses:
    """What speaks for nodes, as one judge has it."""

    heartbeats: Heartbeats
    steps: StepTimes
    heard: Mapping[str, LifeSign] = dataclasses.field(default_factory=dict)

    def silent_s(self, node: str, now: float) -> float:
        """For how long the store has heard of neither of its processes."""
        still = (self.heartbeats.still_for(f"{kind}/{node}", now) for kind in ("agent", "node"))
        return min(still)


def judge_presence(
    cluster: Cluster, witnesses: Witnesses, settings: SidecarSettings, now: float
) -> Cluster:
    """The cluster with who is lost, who is cut off from the store, and whose sidecar is gone."""
    timeout_s, beating = settings.node_timeout_s, witnesses.heartbeats
    at_work = {member.node for member in _at_work(cluster)}
    silent = {name for name in at_work if witnesses.silent_s(name, now) >= timeout_s}
    late = suspects(cluster, at_work, witnesses, settings, now)
    several = _at_once(late, witnesses, timeout_s, len(at_work), now)
    lost, ended, cut_off = dict[str, float](), set[str](), dict[str, str]()
    speechless = dict[str, float]()
    for name, agent in cluster.agents.items():
        node = cluster.nodes.get(name)
        if _saw_it_end(agent, node, witnesses, timeout_s, now):
            ended.add(name)
            lost[name] = beating.still_for(f"agent/{name}", now)
        elif name not in at_work:
            if _is_silent(agent, node, beating, timeout_s, now):
                lost[name] = beating.still_for(f"agent/{name}", now)
        elif name in silent:
            silence_s = _silence_s(name, witnesses, settings, now)
            if silence_s >= _patience_s(name, name in several, witnesses, settings):
                lost[name] = silence_s
            else:
                cut_off[name] = _why_not_lost(name, name in several, witnesses, settings, now)
        elif beating.still_for(f"agent/{name}", now) >= settings.unwitnessed_timeout_s:
            if _has_living_ranks(cluster, name):
                speechless[name] = beating.still_for(f"agent/{name}", now)
            elif _is_stuck(name, witnesses, settings, now):
                lost[name] = beating.still_for(f"agent/{name}", now)
    return dataclasses.replace(
        cluster,
        lost=lost,
        ended=frozenset(ended),
        stepped_with=frozenset(
            n for n in lost if witnesses.steps.began_elsewhere(n) > float("-inf")
        ),
        cut_off=cut_off,
        speechless=speechless,
        unattended=unattended_nodes(cluster, beating, timeout_s, now),
    )


def suspects(
    cluster: Cluster,
    names: Iterable[str],
    witnesses: Witnesses,
    settings: SidecarSettings,
    now: float,
) -> frozenset[str]:
    """Those of these members that were to be heard of by now."""
    after_s = SUSPECT_BEATS * settings.heartbeat_s
    at_work = {member.node for member in _at_work(cluster)}
    return frozenset(n for n in names if n in at_work and witnesses.silent_s(n, now) >= after_s)


def judged(cluster: Cluster, own: str, leader: str) -> frozenset[str]:
    """Whom the sidecar of this node has to know of: the leader of everybody, the others of the
    leader, whose place one of them takes."""
    others = {member.node for member in _at_work(cluster)} - {own}
    return frozenset(others if own == leader else others & {leader})


def next_due_s(
    cluster: Cluster,
    names: Iterable[str],
    witnesses: Witnesses,
    settings: SidecarSettings,
    now: float,
) -> float:
    """Seconds until somebody may have to be asked closely, or declared lost; infinity: nobody."""
    beating, timeout_s = witnesses.heartbeats, settings.node_timeout_s
    nodes = list(names)
    known = [name for name in beats(cluster) if name.partition("/")[2] in nodes]
    due = [
        beating.next_due_s(known, SUSPECT_BEATS * settings.heartbeat_s, now),
        beating.next_due_s(known, timeout_s, now),
    ]
    if any(timeout_s <= witnesses.silent_s(name, now) < 2 * timeout_s for name in nodes):
        due.append(settings.heartbeat_s / 3)  # whoever is asked may have been silent long enough
    return min(due)


def step_counts(cluster: Cluster, plan: Plan) -> dict[str, Steps]:
    """Node -> what all its ranks have done in this attempt, where all of them tell."""
    return {
        member.node: Steps(min(rank.step for rank in node.ranks), _collectives(node.ranks))
        for member in plan.members
        if (node := cluster.nodes.get(member.node)) is not None
        if node.attempt == plan.attempt and len(node.ranks) == member.slots
    }


def _collectives(ranks: Sequence[RankReport]) -> dict[str, int]:
    """Process group, by the digest of its members -> collectives in it that each of its ranks began
    at the least. All in one, of no name, where it isn't known which groups they are of."""
    told = [parse_groups(rank.groups) for rank in ranks]
    if not all(any(groups) for groups in told):
        return {ANY_GROUP: min(sum(rank.collectives) for rank in ranks)}
    least: dict[str, int] = {}
    for groups, rank in zip(told, ranks, strict=True):
        for group, count in zip(groups, rank.collectives, strict=False):
            if group is not None:
                least[group.digest] = min(count, least.get(group.digest, count))
    return least


def unattended_nodes(
    cluster: Cluster, heartbeats: Heartbeats, timeout_s: float, now: float
) -> frozenset[str]:
    """Nodes whose sidecar is gone, whatever their launcher does; a restarted one beats again."""
    patience_s = timeout_s * UNRESPONSIVE_FACTOR
    return frozenset(
        name for name in cluster.nodes if heartbeats.still_for(f"node/{name}", now) >= patience_s
    )


def _at_work(cluster: Cluster) -> list[Member]:
    """Members whose ranks run: there is something to lose by taking them for lost."""
    plan = cluster.plan
    if plan is None or plan.state != "running":
        return []
    return [
        member
        for member in plan.members
        if (agent := cluster.agents.get(member.node)) is not None
        and (agent.incarnation, agent.attempt) == (member.incarnation, plan.attempt)
        and agent.state in ("running", "succeeded", "failed")
    ]


def _at_once(
    late: Iterable[str], witnesses: Witnesses, timeout_s: float, members: int, now: float
) -> set[str]:
    """Nodes that fell silent together with more others than nodes do by themselves.

    late: all that were to be heard of by now. Last heartbeats of nodes that are cut off at one
    moment lie up to a beat apart, so that one of them is lost before the next one's time is up.
    """
    most = max(1, int(AT_ONCE_SHARE * members))
    since_s = {name: witnesses.silent_s(name, now) for name in late}
    return {
        name
        for name in since_s
        if sum(abs(since_s[name] - other) <= timeout_s for other in since_s.values()) > most
    }


def _saw_it_end(
    agent: AgentReport, node: NodeReport | None, witnesses: Witnesses, timeout_s: float, now: float
) -> bool:
    """Whether its sidecar says so, over the store or when it was asked."""
    name = agent.node
    if node is None or node.launcher_pid != agent.pid:
        return False
    if witnesses.heartbeats.still_for(f"node/{name}", now) < timeout_s:
        return not node.launcher_alive
    return _answers(name, witnesses, timeout_s, now) and not witnesses.heard[name].life.has_launcher


def _is_silent(
    agent: AgentReport, node: NodeReport | None, beating: Heartbeats, timeout_s: float, now: float
) -> bool:
    """Of a node that runs no attempt: its launcher is silent, for long if its sidecar is heard."""
    vouched = node is not None and node.launcher_pid == agent.pid
    vouched = vouched and beating.still_for(f"node/{agent.node}", now) < timeout_s
    patience_s = timeout_s * UNRESPONSIVE_FACTOR if vouched else timeout_s
    return beating.still_for(f"agent/{agent.node}", now) >= patience_s


def _is_stuck(name: str, witnesses: Witnesses, settings: SidecarSettings, now: float) -> bool:
    """A launcher that is silent for long beside a sidecar that is heard but sees no rank, while no
    step is made."""
    silent_s = witnesses.heartbeats.still_for(f"agent/{name}", now)
    stood_s = now - witnesses.steps.began_elsewhere(name)
    return min(silent_s, stood_s) >= settings.unwitnessed_timeout_s


def _has_living_ranks(cluster: Cluster, name: str) -> bool:
    """Whether its sidecar, which is heard, sees the launcher's process and a rank of this attempt.
    Such a launcher was stopped, as by Ctrl-Z, or is starved; the ranks train on without it."""
    agent, node, plan = cluster.agents[name], cluster.nodes.get(name), cluster.plan
    if node is None or plan is None or node.attempt != plan.attempt:
        return False
    watched = node.launcher_alive and node.launcher_pid == agent.pid
    return watched and any(rank.alive for rank in node.ranks)


def _answers(name: str, witnesses: Witnesses, timeout_s: float, now: float) -> bool:
    heard = witnesses.heard.get(name)
    is_known = heard is not None and heard.answered_s is not None
    return is_known and heard is not None and now - (heard.answered_s or 0.0) < timeout_s


def _silence_s(name: str, witnesses: Witnesses, settings: SidecarSettings, now: float) -> float:
    """Seconds since any witness spoke for it. A step's age is known to a heartbeat only, which is
    counted in the node's favour."""
    stepped_s = now - witnesses.steps.began_elsewhere(name) - settings.heartbeat_s
    heard = witnesses.heard.get(name)
    answered_s = None if heard is None else heard.answered_s
    asked_s = float("inf") if answered_s is None else now - answered_s
    return max(0.0, min(witnesses.silent_s(name, now), stepped_s, asked_s))


def _patience_s(
    name: str, is_of_several: bool, witnesses: Witnesses, settings: SidecarSettings
) -> float:
    """How long nobody may have spoken for it: where nobody could have, that means little."""
    heard = witnesses.heard.get(name)
    could_speak = heard is not None and heard.answered_s is not None and heard.unanswered >= ROUNDS
    is_short = could_speak and not is_of_several
    longest_s = max(settings.node_timeout_s, settings.unwitnessed_timeout_s)
    return settings.node_timeout_s if is_short else longest_s


def _why_not_lost(
    name: str, is_of_several: bool, witnesses: Witnesses, settings: SidecarSettings, now: float
) -> str:
    """Which witness spoke for a node that the store does not hear, or why none could."""
    heard, timeout_s = witnesses.heard.get(name), settings.node_timeout_s
    if heard is not None and _answers(name, witnesses, timeout_s, now):
        life, stood_s = heard.life, now - heard.since_step_s
        ranks = f"its {life.ranks} ranks are at step {life.step}" if life.ranks else ""
        if ranks and stood_s >= settings.unwitnessed_timeout_s:
            ranks = f"its {life.ranks} ranks have stood at step {life.step} for {stood_s:.0f} s"
        return "its sidecar answers other nodes" + (f", {ranks}" if ranks else "")
    if now - witnesses.steps.began_elsewhere(name) - settings.heartbeat_s < timeout_s:
        return "the other nodes make steps with it"
    if is_of_several:
        return "other nodes fell silent with it, so the way to the store is suspected first"
    if heard is None or heard.answered_s is None:
        return "no other witness can tell whether it lives"
    return "it is being asked"


def find_absent(
    cluster: Cluster, heartbeats: Heartbeats, timeout_s: float, now: float, now_unix_s: float
) -> Iterator[Finding]:
    """Members that `cluster.lost` names, then those whose launcher or sidecar alone is silent.

    Who is gone is named in the finding, not who tells it.
    """
    plan = cluster.plan
    if plan is None or plan.state in TERMINAL:
        return
    for member in plan.members:
        agent = cluster.agents.get(member.node)
        if agent is None or agent.incarnation != member.incarnation or agent.state == "left":
            continue
        if member.node in cluster.lost:
            silent_s = cluster.lost[member.node]
            why = how_lost(cluster, member.node, silent_s)
            yield _finding(Kind.NODE_LOST, member, now_unix_s - silent_s, why)
        elif member.node in cluster.cut_off:
            silent_s = heartbeats.still_for(f"node/{member.node}", now)
            why = f"cut off from the store for {silent_s:.1f} s: {cluster.cut_off[member.node]}"
            yield _finding(Kind.SIDECAR_LOST, member, now_unix_s - silent_s, why)
        elif member.node in cluster.speechless:
            silent_s = cluster.speechless[member.node]
            why = f"nothing was heard of its launcher for {silent_s:.0f} s, and its ranks live"
            yield _finding(Kind.LAUNCHER_LOST, member, now_unix_s - silent_s, why)
        else:
            silent_s = heartbeats.still_for(f"node/{member.node}", now)
            if why := _why_unwatched(cluster, member.node, silent_s, timeout_s):
                yield _finding(Kind.SIDECAR_LOST, member, now_unix_s - silent_s, why)


def saw_sidecar_end(cluster: Cluster, node: str) -> bool:
    """Whether this node's launcher, its parent, says that the sidecar last heard of has ended."""
    agent, report = cluster.agents.get(node), cluster.nodes.get(node)
    return agent is not None and report is not None and agent.ended_sidecar == report.pid != 0


def _why_unwatched(cluster: Cluster, node: str, silent_s: float, timeout_s: float) -> str:
    if saw_sidecar_end(cluster, node):
        return "its launcher saw the sidecar end"
    if node in cluster.nodes and silent_s >= timeout_s:
        return f"nothing was heard of its sidecar for {silent_s:.1f} s"
    return ""


def _finding(kind: Kind, member: Member, since_unix_s: float, why: str) -> Finding:
    ranks = list(member.ranks)
    return Finding(kind, member.node, since_unix_s, CONFIDENCE, ranks, evidence=[why])
