"""Going on without a node: one that a person named, whose hardware is ill, or that is blamed again
and again. Never so that too few are left, and never for more than a share of all. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast_sidecar.config.settings import PolicySettings, Settings
from holdfast_sidecar.policy import budget, quarantine
from holdfast_sidecar.policy.budget import WITHOUT_NODE
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.policy.hardware import HOST, LINK, headline, unanswered
from holdfast_sidecar.policy.modes import mode_of_job
from holdfast_sidecar.policy.requests import RESTART
from holdfast_sidecar.records.findings import Kind, Remedy, parse_remedy
from holdfast_sidecar.records.plan import Incident, Plan, Quarantine
from holdfast_sidecar.records.reports import AgentReport

EVIDENCE_SHOWN = 3
"""Lines that stand in the plan, which everybody reads; the incident has them all."""


@dataclass(frozen=True)
class Way:
    """How the job goes on."""

    incident: Incident
    """With what was decided noted in it."""
    pause_s: float
    outside: list[Quarantine]
    """Nodes that the next attempt does without."""
    why_pause: str = ""


def as_asked(way: Way, cluster: Cluster, now: float, policy: PolicySettings) -> Way:
    """A restart that a person wished for, without a node if they said so."""
    agent = cluster.agents.get(way.incident.culprit_node)
    if agent is None:
        return way
    asked = way.incident.evidence[0] if way.incident.evidence else RESTART
    one = dataclasses.replace(_entry(agent, cluster, way.incident, now, policy, [asked]), by=asked)
    return way if _leaves_too_few(way.outside, one, cluster) else _with(way, one)


def without_repeat_offender(
    way: Way, cluster: Cluster, settings: Settings, earlier: Sequence[Incident], now: float
) -> Way:
    """Without the node that failures are blamed on again and again; else the way as it was."""
    held = budget.held_against(way.incident, earlier)
    agent = cluster.agents.get(way.incident.culprit_node)
    if agent is None or not budget.is_repeat_offender(held, settings.policy, now):
        return way
    why = _how_often(held)
    one = _entry(agent, cluster, way.incident, now, settings.policy, [why])
    if obstacle := _obstacle(way.outside, one, cluster, settings):
        return noted(way, f"would have kept node {agent.node} outside ({why}), but {obstacle}")
    return noted(_with(way, one), _told(agent, why))


def without_ill(
    way: Way, cluster: Cluster, settings: Settings, earlier: Sequence[Incident], now: float
) -> Way | budget.Stop:
    """Without the node whose hardware is ill, until it had what it needs. Where that can't be: once
    in place with a GPU that may work until it is reset, and then not again, for that helps nobody.
    """
    held = budget.held_against(way.incident, earlier)
    if budget.is_repeat_offender(held, settings.policy, now):
        worst = dataclasses.replace(way.incident, remedy=Remedy.REPLACE.value)
        way = noted(dataclasses.replace(way, incident=worst), _how_often(held))
    incident = way.incident
    agent = cluster.agents.get(incident.culprit_node)
    if agent is None:
        return way
    why = _need(incident, cluster)
    one = dataclasses.replace(
        _entry(agent, cluster, incident, now, settings.policy, [why]),
        gpu=incident.gpu,
        remedy=incident.remedy,
    )
    if not (obstacle := _obstacle(way.outside, one, cluster, settings)):
        return noted(_with(way, one), _told(agent, why))
    way = noted(way, f"would have kept node {agent.node} outside ({why}), but {obstacle}")
    # Whom its own gate finds unfit is not taken in anyway, while there are others.
    is_out = agent.node in cluster.unfit and not _leaves_too_few(way.outside, one, cluster)
    may_act = mode_of_job(settings, "quarantine") == "act"
    if is_out or not may_act or _may_work(incident, cluster, earlier):
        return way
    return budget.Stop(
        budget.EXIT_REQUEUE, f"{why}, and {obstacle}", quarantine.add(way.outside, one)
    )


def without_slow(way: Way, cluster: Cluster, settings: Settings, now: float) -> Way:
    """Without the node that a spare is faster than; in place where that can't be any more."""
    agent = cluster.agents.get(way.incident.culprit_node)
    if agent is None:
        return way
    why = way.incident.evidence[0]
    one = _entry(agent, cluster, way.incident, now, settings.policy, [why])
    if obstacle := _obstacle(way.outside, one, cluster, settings):
        return noted(way, f"would have kept node {agent.node} outside, but {obstacle}")
    return noted(_with(way, one), _told(agent, why))


def without_others(way: Way, cluster: Cluster, plan: Plan, settings: Settings, now: float) -> Way:
    """Without nodes whose hardware fell ill at the same time: each would end the next attempt."""
    for fault in unanswered(cluster, plan):
        node = fault.finding.node
        agent = cluster.agents.get(node)
        is_known = node == way.incident.culprit_node or any(one.node == node for one in way.outside)
        if agent is None or is_known or fault.mode != "act":
            continue
        why = headline(fault)
        one = dataclasses.replace(
            _entry(agent, cluster, way.incident, now, settings.policy, [why]),
            gpu=fault.finding.gpu,
            remedy=fault.finding.remedy.value,
        )
        if not _obstacle(way.outside, one, cluster, settings):
            way = dataclasses.replace(way, outside=quarantine.add(way.outside, one))
            way = noted(way, _told(agent, why))
    return way


def noted(way: Way, line: str) -> Way:
    """With this line among its reasons: once, however often this is judged before it is done."""
    evidence = [*(one for one in way.incident.evidence if one != line), line]
    return dataclasses.replace(way, incident=dataclasses.replace(way.incident, evidence=evidence))


def _told(agent: AgentReport, why: str) -> str:
    return f"node {agent.node} is kept outside from now on: {why}"


def _how_often(held: Sequence[Incident]) -> str:
    """Judged again it says the same."""
    at = [incident.detected_unix_s for incident in held]
    span_s = max(at) - min(at)
    return f"{len(held)} failures within {_in_words(span_s)} are blamed on it"


def _in_words(span_s: float) -> str:
    """Rounded up, in a unit that leaves small numbers."""
    for unit_s, unit in ((1.0, "s"), (60.0, "min"), (3600.0, "h")):
        if span_s < 100 * unit_s:
            return f"{max(1, -int(-span_s // unit_s))} {unit}"
    return f"{-int(-span_s // 86400.0)} days"


def _need(incident: Incident, cluster: Cluster) -> str:
    """What the part needs, of which machine."""
    node, gpu = f"node {incident.culprit_node}", _named_gpu(incident, cluster)
    part = f"{gpu} of {node}" if incident.gpu else node
    remedy = parse_remedy(incident.remedy)
    if remedy is Remedy.REBOOT_NODE:
        return f"{node} needs a reboot" + f" for its {gpu}" * bool(incident.gpu)
    needs = "to be replaced" if remedy is Remedy.REPLACE else "a reset"
    return f"{part} needs {needs}"


def _named_gpu(incident: Incident, cluster: Cluster) -> str:
    """By its number, as its node tells it now."""
    node = cluster.nodes.get(incident.culprit_node)
    named = (f.named_gpu for f in (node.findings if node else ()) if f.gpu == incident.gpu)
    return next(named, f"GPU {incident.gpu}")


def _may_work(incident: Incident, cluster: Cluster, earlier: Iterable[Incident]) -> bool:
    """Whether to try it in place: the GPU is there, and that was not tried before. Whether the job
    needs just the link that was lost nobody knows; if it does, the budget of restarts ends it. Host
    memory that failed is used no more."""
    if incident.cause in (LINK, HOST):
        return True
    if incident.remedy != Remedy.RESET_GPU.value or not incident.gpu:
        return False
    node = cluster.nodes.get(incident.culprit_node)
    findings = [] if node is None else node.findings
    is_lost = incident.culprit_node in cluster.unfit.keys() - cluster.lame or any(
        f.kind is Kind.GPU_LOST and f.gpu == incident.gpu for f in findings
    )
    was_tried = any(
        one.gpu == incident.gpu and one.remedy and one.decided == "restart" and not one.escalation
        for one in earlier
        if _is_recent(one, incident)
    )
    return not is_lost and not was_tried


def _is_recent(one: Incident, incident: Incident) -> bool:
    """A day later it has another chance: somebody may have reset it between two runs."""
    return incident.detected_unix_s - one.detected_unix_s < 86400.0


def _entry(
    agent: AgentReport,
    cluster: Cluster,
    incident: Incident,
    now: float,
    policy: PolicySettings,
    why: list[str],
) -> Quarantine:
    node = cluster.nodes.get(agent.node)
    told = _told(agent, why[0])
    shown = [*why, *(line for line in incident.evidence if line not in (*why, told))]
    return Quarantine(
        quarantine.part_of(agent, cluster.agents.values()),
        agent.node,
        now,
        now + policy.quarantine_s,
        shown[:EVIDENCE_SHOWN],
        boot="" if node is None else node.boot,
        incident=incident.identifier,
    )


def _obstacle(
    outside: Sequence[Quarantine], one: Quarantine, cluster: Cluster, settings: Settings
) -> str:
    """Why this node is not put outside; empty: it is."""
    if _leaves_too_few(outside, one, cluster):
        return "too few nodes would be left"
    if (mode := mode_of_job(settings, "quarantine")) != "act":
        return f"the mode is {mode}"
    share = settings.policy.quarantine_share
    return quarantine.is_too_much(outside, one, cluster.agents.values(), share)


def _leaves_too_few(outside: Sequence[Quarantine], one: Quarantine, cluster: Cluster) -> bool:
    kept = quarantine.add(outside, one)
    left = cluster.at_hand(kept)
    return not left or len(left) < left[0].min_nodes


def _with(way: Way, one: Quarantine) -> Way:
    incident = dataclasses.replace(way.incident, escalation=WITHOUT_NODE)
    return dataclasses.replace(way, incident=incident, outside=quarantine.add(way.outside, one))
