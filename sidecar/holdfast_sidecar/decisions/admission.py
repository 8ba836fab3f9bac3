"""Which nodes an attempt may take in, by what the health gate on each of them said.

A verdict that does not come is not held against a node: it is let in after a while, and told of.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.decisions.formation import Formation, Mismatch, Waiting
from holdfast_sidecar.decisions.quarantine import find, is_kept_out
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.reports import AgentReport, GateVerdict

VERDICT = "verdict"
"""Which check it is whose want is told, where the whole verdict is wanting."""


def mode_of_gate(settings: Settings) -> str:
    """What may be done about an unfit node: the leader's word."""
    return settings.gate.mode or settings.sidecar.mode


def verdict_on(agent: AgentReport, cluster: Cluster) -> GateVerdict | None:
    """What this node's sidecar says of it; None where none says anything (any more).

    A sidecar of an earlier launcher spoke of another time.
    """
    node = cluster.nodes.get(agent.node)
    if node is None or node.gate is None or agent.node in cluster.unattended:
        return None
    is_of_this = node.launcher_pid in (0, agent.pid)
    return node.gate if is_of_this and node.gate.state != "unknown" else None


def awaited(agent: AgentReport, cluster: Cluster) -> str:
    """What is waited for before this node is taken in, as a key; empty: nothing.

    After a blame only a verdict counts that was made when its attempt was over.
    """
    if not agent.awaits_gate:
        return ""
    verdict, blamed_for = verdict_on(agent, cluster), _blamed_for(agent, cluster)
    if verdict is not None and (verdict.state == "unfit" or verdict.after == blamed_for):
        return ""
    if verdict is not None and not blamed_for:
        return ""
    return f"{agent.incarnation} {blamed_for}"


def judge_admission(cluster: Cluster, waited_s: Mapping[str, float], settings: Settings) -> Cluster:
    """The cluster with who is unfit, who is still waited for, and who comes in unchecked.

    waited_s: node -> how long what `awaited` names has been wanting.
    """
    if mode_of_gate(settings) != "act":
        return cluster
    waiting = cluster.waiting()
    patience_s = settings.gate.wait_s
    if settings.gate.test_after_blame and _blames_somebody(cluster):
        patience_s += settings.gate.test_timeout_s
    silent = [agent.node for agent in waiting if awaited(agent, cluster)]
    unheard = frozenset(node for node in silent if waited_s.get(node, 0.0) < patience_s)
    running = [agent for agent in cluster.agents.values() if agent.state == "running"]
    mute = {agent.node for agent in running if _has_no_word(agent, cluster)}
    return dataclasses.replace(
        cluster,
        unfit=_unfit(waiting, cluster),
        lame=_lame(waiting, cluster),
        never_again=frozenset(_unfit(running, cluster)) - _lame(running, cluster),
        unheard=unheard,
        unchecked=frozenset({*silent, *mute} - unheard),
    )


def find_unchecked(cluster: Cluster, now_unix_s: float) -> Iterator[Finding]:
    """Nodes that are taken in though nobody knows how they are."""
    for node in sorted(cluster.unchecked):
        if cluster.is_alive(node):
            told = "its sidecar gave no verdict in time: the node is let in unchecked"
            yield Finding(Kind.GATE_BLIND, node, now_unix_s, 0.9, evidence=[told], what=VERDICT)


def awaits_words(cluster: Cluster, waiting: Iterable[AgentReport]) -> str:
    """Whose health check is waited for, of these; empty: nobody's."""
    outside = cluster.outside()
    unheard = (agent for agent in waiting if agent.node in cluster.unheard)
    names = sorted(agent.node for agent in unheard if not is_kept_out(agent, outside))
    return f"waiting for the health check of {', '.join(names)}" if names else ""


def unfit_words(cluster: Cluster, waiting: Iterable[AgentReport]) -> str:
    """Who of these is kept outside as unfit and why, to be set behind other words."""
    named = sorted(agent.node for agent in waiting if agent.node in cluster.unfit)
    told = ", ".join(f"{node} ({cluster.unfit[node]})" for node in named)
    return f"; unfit: {told}" if told else ""


def with_unfit(
    formed: Formation | Waiting | Mismatch, cluster: Cluster, waiting: Sequence[AgentReport]
) -> Formation | Waiting | Mismatch:
    """What is waited for, with who is here and may not come in."""
    if not isinstance(formed, Waiting):
        return formed
    words = unfit_words(cluster, waiting) + _kept_out_words(cluster, waiting)
    return Waiting(formed.reason + words)


def _kept_out_words(cluster: Cluster, waiting: Iterable[AgentReport]) -> str:
    outside = cluster.outside()
    kept = {agent.node: find(agent, outside) for agent in waiting}
    told = ", ".join(
        f"{node} ({'; '.join(one.evidence[:1])})"
        for node, one in sorted(kept.items())
        if one is not None and node not in cluster.unfit
    )
    return f"; kept outside: {told}" if told else ""


def _unfit(waiting: Iterable[AgentReport], cluster: Cluster) -> dict[str, str]:
    said = {agent.node: verdict_on(agent, cluster) for agent in waiting}
    return {
        node: "; ".join(verdict.reasons[:1]) or "no reason given"
        for node, verdict in said.items()
        if verdict is not None and verdict.state == "unfit"
    }


def _lame(waiting: Iterable[AgentReport], cluster: Cluster) -> frozenset[str]:
    said = {agent.node: verdict_on(agent, cluster) for agent in waiting}
    return frozenset(
        node
        for node, verdict in said.items()
        if verdict is not None and verdict.state == "unfit" and verdict.works
    )


def _has_no_word(agent: AgentReport, cluster: Cluster) -> bool:
    is_watched = agent.node not in cluster.unattended
    return agent.awaits_gate and is_watched and verdict_on(agent, cluster) is None


def _blamed_for(agent: AgentReport, cluster: Cluster) -> str:
    plan = cluster.plan
    is_blamed = plan is not None and plan.state == "ended" and plan.culprit_node == agent.node
    return plan.incident if plan is not None and is_blamed else ""


def _blames_somebody(cluster: Cluster) -> bool:
    return any(_blamed_for(agent, cluster) for agent in cluster.waiting())
