"""A job that somebody else launched: there is no plan, and nobody to restart it.

Its incidents are recorded, with who is to blame. At most, where told to act, the culprit of a hang
is ended, so that its launcher notices.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.policy import modes
from holdfast_sidecar.policy.blame import ABORTED, OF_A_PEER, VICTIM
from holdfast_sidecar.policy.cluster import Cluster, parse_cluster
from holdfast_sidecar.policy.hardware import OF_HARDWARE, explained
from holdfast_sidecar.policy.modes import mode_on
from holdfast_sidecar.policy.numbers import describe, judge
from holdfast_sidecar.policy.outcome import (
    Decision,
    DecisionContext,
    Write,
    amend,
    note_bundles,
    with_keepers,
    with_places,
)
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.plan import Incident, Member, Plan
from holdfast_sidecar.records.reports import NodeReport
from holdfast_sidecar.store.orders import Orders
from holdfast_sidecar.store.protocol import Section

# Who began a fault, in a job that somebody else launched: the finding that says most. Pure.
#
# Launchers of ours tell the order of exits; here there are only the sidecars' findings.

FAULTS = frozenset({Kind.CRASH, Kind.HANG, Kind.STALL, Kind.DATA_STALL})

BY_ORDER = re.compile(
    r"\bended by (SIGTERM|SIGINT)\b|\bexited with code (130|143)\b"
    r"|\b(last words|rank \d+): KeyboardInterrupt\b"
)
"""How launchers, schedulers and people end ranks: a consequence, or wanted. (130 and 143 are what
programs leave by that handle SIGINT and SIGTERM.)"""


LEAST = 0.3
"""Findings below this are about ranks that wait for another one."""


@dataclass(frozen=True)
class Accusation:
    """A finding, how sure it is that it tells who began it, and what may be done where it was."""

    finding: Finding
    sureness: float
    mode: str

    @property
    def weight(self) -> tuple[bool, float, float]:
        """What speaks for itself comes first, then what is surer, then what was first."""
        return (self.finding.acts, self.sureness, -self.finding.since_unix_s)


def accuse(nodes: Sequence[NodeReport], settings: Settings, now_unix_s: float) -> Accusation | None:
    """Who most likely began what is wrong with the ranks of these nodes; None: all is well."""
    accusations = [
        Accusation(finding, sureness_of(finding), mode_on(node, finding.kind.value))
        for node in nodes
        for finding in node.findings
        if finding.kind in FAULTS and sureness_of(finding) >= LEAST
    ]
    if accusations:
        return max(accusations, key=lambda accusation: accusation.weight)
    return _wrong_numbers(nodes, settings, now_unix_s)


def sureness_of(finding: Finding) -> float:
    """The finding's confidence, less where a death looks like another one's consequence."""
    if finding.kind is not Kind.CRASH:
        return finding.confidence
    told = " ".join(finding.evidence)
    if BY_ORDER.search(told):
        return 0.0
    is_victim = OF_A_PEER.search(told) is not None or ABORTED in told
    return min(finding.confidence, VICTIM) if is_victim else finding.confidence


def _wrong_numbers(
    nodes: Sequence[NodeReport], settings: Settings, now_unix_s: float
) -> Accusation | None:
    """Numbers that are wrong on all ranks that tell any: a job of ours would go back for them."""
    ranks = [rank for node in nodes for rank in node.ranks]
    onset = judge(ranks, settings)
    if onset is None:
        return None
    sureness = 0.6 if onset.first else 0.9
    finding = Finding(
        kind=Kind(onset.cause),
        node="",
        since_unix_s=modes.of_numbers(onset.step, ranks, now_unix_s),
        confidence=sureness,
        ranks=list(onset.first),
        evidence=[describe(onset)],
    )
    return Accusation(finding, sureness, mode_on(nodes[0], onset.cause))


END = "end"
"""Decided about a hang where told to act: its culprit is ended."""

LEAVE = "leave"
"""Decided about ranks that are dead: what follows is for whoever launched them."""


def is_attached(cluster: Cluster) -> bool:
    """Whether somebody else launches the ranks: every sidecar says so, and no launcher reports."""
    return (
        bool(cluster.nodes)
        and not cluster.agents
        and all(node.attached for node in cluster.nodes.values())
    )


def observe(cluster: Cluster, circumstances: DecisionContext) -> Decision:
    """Open, amend or close the job's incident; there mostly is nothing to do."""
    nodes = _running(cluster)
    attempt = max((node.attempt for node in nodes), default=-1)
    now = circumstances.now_unix_s
    found = accuse(nodes, circumstances.settings, now)
    known = open_incident(cluster.incidents)
    if known is not None and (told := _with_evidence(cluster, known, nodes)) != known:
        return Decision((amend(cluster, told),))
    if known is not None and (better := _with_hardware(cluster, known, nodes)) != known:
        return Decision((amend(cluster, better),))
    if known is not None and not found and _goes_on(nodes, known, attempt):
        # With those of starts before that came to nothing, too.
        still_open = [one for one in cluster.incidents.values() if not _is_over(one)]
        return Decision(tuple(amend(cluster, _closed(one, nodes, now)) for one in still_open))
    if found is None:
        return Decision(note_bundles(cluster))
    if known is None or known.attempt != attempt:
        incident = _incident(found, attempt, nodes, circumstances)
        return Decision((Write(Section.INCIDENTS, incident.identifier, encode(incident), None),))
    if _says_more(found, known):
        better = _incident(found, attempt, nodes, circumstances)
        kept = {name: getattr(known, name) for name in _ONCE}
        return Decision((amend(cluster, dataclasses.replace(better, **kept)),))
    return Decision()


def open_incident(incidents: Mapping[str, Incident]) -> Incident | None:
    """The newest incident, unless it is over."""
    newest = max(incidents.values(), key=lambda one: one.detected_unix_s, default=None)
    return None if newest is None or _is_over(newest) else newest


def _is_over(incident: Incident) -> bool:
    return bool(incident.recovered_unix_s) or incident.decided == "stop"


def attached_plan(cluster: Cluster, epoch: int) -> Plan | None:
    """What sidecars do about the open incident, as the plan of a job of ours would say it: keep
    evidence, then end the culprit where that was decided. None: nothing."""
    incident = open_incident(cluster.incidents) if is_attached(cluster) else None
    nodes = [node for node in _running(cluster) if incident and node.attempt == incident.attempt]
    if incident is None or not nodes:
        return None
    return Plan(
        attempt=incident.attempt,
        epoch=epoch,
        state="evidence",
        members=[
            Member(node.node, node.incarnation, rank, 0, len(node.ranks))
            for rank, node in enumerate(nodes)
        ],
        incident=incident.identifier,
        cause=incident.cause,
        culprit_node=incident.culprit_node,
        culprit_ranks=incident.culprit_ranks if incident.decided == END else [],
    )


def attached_run(cluster: Cluster) -> Plan | None:
    """The ranks of a job that somebody else launched, as the plan of a job of ours would tell of
    them; None: it is one of ours, or none of its ranks is seen."""
    nodes = _running(cluster) if is_attached(cluster) else []
    if not nodes:
        return None
    members = [
        Member(node.node, node.incarnation, number, 0, len(node.ranks))
        for number, node in enumerate(nodes)
    ]
    ranks = sum(member.slots for member in members)
    return Plan(nodes[0].attempt, 0, "running", members=members, world_size=ranks)


_ONCE = ("identifier", "since_unix_s", "detected_unix_s", "step_reached", "kept_by")
"""What stays as it was when an incident was opened."""


def _with_evidence(cluster: Cluster, incident: Incident, nodes: list[NodeReport]) -> Incident:
    """With who has its evidence on disk, and, once all have, where their ranks stood."""
    noted = with_keepers(cluster, incident)
    if all(node.evidence_for == incident.identifier for node in nodes):
        noted = with_places(cluster, noted)
    return noted


def _with_hardware(cluster: Cluster, incident: Incident, nodes: list[NodeReport]) -> Incident:
    """With the hardware that explains it; whoever is ended for it already stays who is named."""
    ranks = {node.node: [rank.rank for rank in node.ranks] for node in nodes}
    members = [
        Member(name, "", 0, min(own), max(own) - min(own) + 1) for name, own in ranks.items()
    ]
    better = explained(incident, cluster, Plan(incident.attempt, 0, "running", members))
    if better.cause != incident.cause:
        better = dataclasses.replace(better, seen_as=incident.cause)
    is_same = better.culprit_ranks == incident.culprit_ranks
    return better if is_same or incident.decided != END else incident


def _running(cluster: Cluster) -> list[NodeReport]:
    """Nodes of the newest attempt that have ranks, by name."""
    nodes = sorted((n for n in cluster.nodes.values() if n.ranks), key=lambda n: n.node)
    newest = max((node.attempt for node in nodes), default=-1)
    return [node for node in nodes if node.attempt == newest]


def _says_more(found: Accusation, known: Incident) -> bool:
    """Whether this is surer about who began it, or about the same now sure enough to act."""
    finding = found.finding
    if known.decided == END or known.cause in OF_HARDWARE:
        return False  # what comes now comes of that
    if (finding.node, list(finding.ranks)) != (known.culprit_node, known.culprit_ranks):
        return found.sureness > known.confidence
    if finding.kind.value == known.cause:
        return _decide(found) != known.decided
    # Silence became proof; but one that hung and was then ended did hang.
    return finding.kind is not Kind.CRASH and found.sureness > known.confidence


def _incident(
    found: Accusation, attempt: int, nodes: list[NodeReport], circumstances: DecisionContext
) -> Incident:
    finding = found.finding
    return Incident(
        circumstances.new_identifier,
        attempt,
        finding.kind.value,
        finding.node,
        list(finding.ranks),
        found.sureness,
        since_unix_s=finding.since_unix_s,
        detected_unix_s=circumstances.now_unix_s,
        decided=_decide(found),
        step_reached=max((rank.step for node in nodes for rank in node.ranks), default=0),
        evidence=list(finding.evidence),
    )


def _decide(found: Accusation) -> str:
    if found.finding.kind is Kind.CRASH:
        return LEAVE
    if found.mode != "act":
        return found.mode
    if found.finding.kind in (Kind.NONFINITE, Kind.SPIKE):
        return "observe"  # going back is for whoever can restart it
    return END if found.finding.acts else ""


def _goes_on(nodes: list[NodeReport], incident: Incident, attempt: int) -> bool:
    """Whether every rank there is lives and steps on, or all of them have ended well."""
    ranks = [rank for node in nodes for rank in node.ranks]
    if not ranks:
        return False
    if all(rank.has_finished for rank in ranks):
        return True
    is_same = incident.attempt == attempt and incident.decided not in (LEAVE, END)
    reached = incident.step_reached if is_same else 0
    # Seen from outside alone, ranks have no steps.
    return all(rank.alive and (rank.step > reached or not incident.step_reached) for rank in ranks)


def _closed(incident: Incident, nodes: list[NodeReport], now_unix_s: float) -> Incident:
    resumed = max((rank.resumed_step for node in nodes for rank in node.ranks), default=0)
    return dataclasses.replace(
        incident, recovered_unix_s=now_unix_s, step_resumed=resumed or incident.step_reached
    )


# What a sidecar obeys in a job that somebody else launched, where nobody writes a plan.


def obeyed(orders: Orders) -> Orders:
    """The orders, with what is to be done about an open incident in the plan's place."""
    if orders.view is None or orders.plan is not None:
        return orders
    cluster = parse_cluster(orders.view)
    return dataclasses.replace(orders, plan=attached_plan(cluster, orders.lease.epoch))
