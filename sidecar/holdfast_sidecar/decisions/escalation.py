"""How a job goes on after a failure: restart in place, without the node, further back, or stop.

Each rung is taken only when the one below has not helped: a node goes when it alone is blamed again
and again, state when attempts that resume from it die without a new step.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast_sidecar.coordination.reports import AgentReport, Incident, Plan, Quarantine
from holdfast_sidecar.decisions import quarantine, restart
from holdfast_sidecar.decisions.choosing import is_about_numbers
from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.decisions.modes import mode_of_job
from holdfast_sidecar.decisions.pausing import RESTART
from holdfast_sidecar.settings import PolicySettings, Settings

WITHOUT_NODE = "without_node"
ROLL_BACK = "roll_back"

OF_A_NODE = frozenset({"crash", "hang", "stall", "node_lost"})
"""Causes for which a machine may be to blame."""

OF_STATE = frozenset({"crash", "hang", "stall"})
"""Causes that the state which was resumed from may have."""

SURE = 0.6
"""A guess among several that died alike is no evidence against a machine."""

OUT_OF_MEMORY = "OOM killer"
"""As the sidecar words it whose rank was killed for that."""

EVIDENCE_SHOWN = 3
"""Lines that stand in the plan, which everybody reads; the incident has them all."""

JITTER = 0.25
"""Part of a pause by which jobs differ that failed together (a switch, a file system), so that they
don't come back together, too."""


@dataclass(frozen=True)
class Way:
    """How the job goes on."""

    incident: Incident
    """With what was decided noted in it."""
    pause_s: float
    outside: list[Quarantine]
    """Nodes that the next attempt does without."""
    why_pause: str = ""


def find_way(
    cluster: Cluster,
    plan: Plan,
    incident: Incident,
    settings: Settings,
    cap: int,
    now_unix_s: float,
) -> Way | restart.Stop:
    """The lowest rung that may help. `cap`: see `restart.decide`."""
    policy = settings.policy
    earlier = [i for i in cluster.incidents.values() if i.identifier != incident.identifier]
    verdict = restart.decide(incident, earlier, plan.restarts, cap, policy, now_unix_s)
    if isinstance(verdict, restart.Stop):
        return verdict
    pause_s = jittered(verdict.pause_s, incident.identifier)
    way = Way(incident, pause_s, list(plan.outside), verdict.why)
    if incident.cause == RESTART:
        return _as_asked(way, cluster, now_unix_s, policy)
    if incident.cause in restart.PLANNED:
        return way
    if (blamed := blames(incident, earlier, policy, now_unix_s)) >= policy.blames_limit:
        way = _without_node(way, cluster, settings, blamed, now_unix_s)
    if way.incident.escalation == WITHOUT_NODE:
        return way
    return _further_back(way, cluster, plan, earlier, policy)


def jittered(pause_s: float, identifier: str) -> float:
    """The pause, longer by up to a quarter: the same each time the same incident is judged."""
    return pause_s * (1 + JITTER * zlib.crc32(identifier.encode()) / 2**32)


def blames(
    incident: Incident, earlier: Iterable[Incident], policy: PolicySettings, now_unix_s: float
) -> int:
    """How many failures within the window are this machine's, with this one; 0: it is none.

    What follows its ranks to another machine is theirs (the rank that always runs out of memory),
    and what a quarantine has answered does not count again.
    """
    if not _blames_a_machine(incident):
        return 0
    since = now_unix_s - policy.quarantine_s
    alike = [i for i in earlier if _blames_a_machine(i) and i.detected_unix_s >= since]
    of_ranks = (
        other.culprit_part != incident.culprit_part
        and other.cause == incident.cause
        and other.culprit_ranks == incident.culprit_ranks
        for other in alike
    )
    if any(of_ranks):
        return 0
    own = [i for i in alike if i.culprit_part == incident.culprit_part]
    answered = max((i.detected_unix_s for i in own if i.escalation == WITHOUT_NODE), default=0.0)
    return 1 + sum(i.detected_unix_s > answered for i in own)


def is_stuck(incident: Incident, earlier: Sequence[Incident], limit: int) -> bool:
    """Whether the last failures came without a step that had not been made before.

    What was rolled back begins anew: its steps are made again on purpose.
    """
    row = [incident]
    if is_about_numbers(incident):
        return False
    for one in sorted(earlier, key=lambda one: one.attempt, reverse=True):
        if one.cause in restart.PLANNED or one.decided != "restart":
            continue
        if is_about_numbers(one) or len(row) == limit:
            break
        row.append(one)
    is_suspect = all(i.cause in OF_STATE and not _ran_out_of_memory(i) for i in row)
    first = row[-1]
    return (
        is_suspect
        and len(row) == limit
        and all(one.step_reached <= first.step_reached for one in row)
    )


def _blames_a_machine(incident: Incident) -> bool:
    return (
        bool(incident.culprit_part)
        and incident.cause in OF_A_NODE
        and incident.confidence >= SURE
        and not _is_of_program(incident)
    )


def _is_of_program(incident: Incident) -> bool:
    """An exception of the script, a hang that its collectives explain, memory that it used up."""
    explained = incident.cause != "crash" and bool(incident.signature)
    return incident.is_of_script or explained or _ran_out_of_memory(incident)


def _ran_out_of_memory(incident: Incident) -> bool:
    return any(OUT_OF_MEMORY in line for line in incident.evidence)


def _as_asked(way: Way, cluster: Cluster, now: float, policy: PolicySettings) -> Way:
    """A restart that a person wished for, without a node if they said so."""
    agent = cluster.agents.get(way.incident.culprit_node)
    if agent is None:
        return way
    asked = way.incident.evidence[0] if way.incident.evidence else RESTART
    return _with(way, _quarantine(agent, cluster, now, policy, [asked], by=asked), cluster)


def _without_node(way: Way, cluster: Cluster, settings: Settings, blamed: int, now: float) -> Way:
    incident = way.incident
    agent = cluster.agents.get(incident.culprit_node)
    if agent is None:
        return way
    why = f"{blamed} failures within {settings.policy.quarantine_s / 3600:g} h are blamed on it"
    told = f"node {agent.node} is kept outside from now on: {why}"
    mode = mode_of_job(settings, "quarantine")
    shown = [why, *(line for line in incident.evidence if line != told)][:EVIDENCE_SHOWN]
    one = _quarantine(agent, cluster, now, settings.policy, shown)
    tried = _with(way, one, cluster)
    if mode != "act" or tried is way:
        obstacle = "too few nodes would be left" if tried is way else f"the mode is {mode}"
        return _noted(way, f"would have kept node {agent.node} outside ({why}), but {obstacle}")
    return _noted(tried, told)


def _quarantine(
    agent: AgentReport,
    cluster: Cluster,
    now: float,
    policy: PolicySettings,
    evidence: list[str],
    by: str = "",
) -> Quarantine:
    part = quarantine.part_of(agent, cluster.agents.values())
    return Quarantine(part, agent.node, now, now + policy.quarantine_s, evidence, by)


def _with(way: Way, one: Quarantine, cluster: Cluster) -> Way:
    """The way without this node; the same as before where too few nodes would be left."""
    outside = quarantine.add(way.outside, one)
    left = [a for a in cluster.willing() if not quarantine.is_kept_out(a, outside)]
    if not left or len(left) < left[0].min_nodes:
        return way
    incident = dataclasses.replace(way.incident, escalation=WITHOUT_NODE)
    return dataclasses.replace(way, incident=incident, outside=outside)


def _noted(way: Way, line: str) -> Way:
    """With this line among its reasons: once, however often this is judged before it is done."""
    evidence = [*(one for one in way.incident.evidence if one != line), line]
    return dataclasses.replace(way, incident=dataclasses.replace(way.incident, evidence=evidence))


def _further_back(
    way: Way, cluster: Cluster, plan: Plan, earlier: Sequence[Incident], policy: PolicySettings
) -> Way | restart.Stop:
    """Behind the state that was resumed from, once; when that does not help either, stop."""
    incident = way.incident
    if not is_stuck(incident, earlier, policy.stuck_limit):
        return way
    words = f"{policy.stuck_limit} failures in a row, and no attempt came past step"
    gone_back = [i for i in earlier if i.escalation == ROLL_BACK]
    if any(one.step_reached >= incident.step_reached for one in gone_back):
        return restart.Stop(
            restart.EXIT_DO_NOT_REQUEUE,
            f"{words} {incident.step_reached}, though the job had gone back further",
        )
    resumed = _resumed_from(cluster, plan)
    good = [e.step for e in cluster.ledger.values() if e.verdict == "good" and e.step < resumed]
    if not good:
        return way
    told = f"{words} {incident.step_reached}: back behind step {resumed}, from which they resumed"
    distrusting = dataclasses.replace(incident, escalation=ROLL_BACK, distrusts_from=resumed)
    return _noted(dataclasses.replace(way, incident=distrusting), told)


def _resumed_from(cluster: Cluster, plan: Plan) -> int:
    """Step of the state that this attempt began with; 0: with nothing."""
    known = max((rank.resumed_step for rank in cluster.ranks(plan).values()), default=0)
    return known or max((candidate.step for candidate in plan.resume), default=0)
