"""Who is named when ranks hang: among findings that act, and against one that names a victim. Pure.

Each node judges its own ranks; here it is seen who of all of them keeps the others waiting.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from holdfast_sidecar.decisions import fault_time
from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.decisions.modes import mode_on
from holdfast_sidecar.ranks.collectives import Arrival, Cause
from holdfast_sidecar.ranks.deadlock import judge_late
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.plan import Incident, Plan
from holdfast_sidecar.records.reports import NodeReport

GUESSED = 0.5
"""Of a rank that may be a victim itself, `blame` is so sure, or less."""

LEAST = 0.3
"""Findings that are less sure than this are of ranks that wait for others."""


def name_culprit(acting: Iterable[Finding], cluster: Cluster, plan: Plan) -> Incident | None:
    """The incident that these findings (there may be none) make of the attempt.

    Whether its culprit may be ended is another question: see `mode_where_it_was`.
    """
    surest = max(acting, key=lambda finding: finding.confidence, default=None)
    if surest is None:
        return None
    arrival = judge_attempt(cluster, plan)
    if arrival is None:
        return _incident(plan, surest, "")
    if arrival.cause is Cause.ARRIVED and surest.kind is not Kind.HANG:
        return _of_nobody(arrival, surest, plan)
    if surest.kind is not Kind.HANG and set(surest.ranks) <= set(arrival.waiting):
        named = _of_culprits(arrival, surest, cluster, plan)
        return named or _incident(plan, surest, "")
    is_same = bool(arrival.culprits) and set(surest.ranks) <= set(arrival.culprits)
    signature = _signature(arrival, cluster, plan) if is_same else ""
    return _incident(plan, surest, signature, arrival.evidence if is_same else ())


def name_late(crash: Incident, cluster: Cluster, plan: Plan, now_unix_s: float) -> Incident | None:
    """What a crash is the consequence of: its rank gave up waiting for one that lives and had not
    arrived. None: it is its own, or nobody was found silent, nor said to be busy."""
    gave_up = any(fault_time.GAVE_UP.search(line) for line in crash.evidence)
    if not gave_up or crash.confidence > GUESSED:
        return None
    living = {rank.rank for rank in cluster.ranks(plan).values() if rank.alive and not rank.ending}
    waiting = set(crash.culprit_ranks) | _waiting(cluster, plan)
    accused = [
        finding
        for member in plan.members
        if (node := cluster.nodes.get(member.node)) is not None and node.attempt == plan.attempt
        for finding in (*node.findings, *_busy(node, now_unix_s))
        if finding.kind in fault_time.SILENCE and finding.confidence >= LEAST
        if set(finding.ranks) <= living - waiting
    ]
    surest = max(accused, key=lambda finding: finding.confidence, default=None)
    if surest is None:
        return None
    why = "the others waited for it until their process group's own timeout"
    late = _incident(plan, surest, "", [why, *crash.evidence])
    return dataclasses.replace(late, cause=Kind.STALL.value)


def _waiting(cluster: Cluster, plan: Plan) -> set[int]:
    """Ranks that are known to wait for others themselves."""
    arrival = judge_attempt(cluster, plan)
    return set() if arrival is None else set(arrival.waiting)


def _busy(node: NodeReport, now_unix_s: float) -> Iterator[Finding]:
    """Ranks whose script said that they were busy, of which nothing is found."""
    for rank in node.ranks:
        if rank.busy and rank.alive:
            told = f"rank {rank.rank} was busy with {rank.busy!r} for {rank.phase_age_s:.0f} s"
            since_unix_s = now_unix_s - rank.phase_age_s
            yield Finding(Kind.STALL, node.node, since_unix_s, LEAST, [rank.rank], [told])


def mode_where_it_was(incident: Incident, cluster: Cluster) -> str:
    """What may be done about it, as the culprit's own node has it; who is named nowhere needs no
    leave but that of who was found."""
    node = cluster.nodes.get(incident.culprit_node)
    return "act" if node is None else mode_on(node, incident.cause)


def judge_attempt(cluster: Cluster, plan: Plan) -> Arrival | None:
    """Who keeps the others waiting, by what all ranks of the attempt told. What a node told before
    it was cut off from the store is old."""
    traces = {
        trace.rank: trace
        for member in plan.members
        if (node := cluster.nodes.get(member.node)) is not None and node.attempt == plan.attempt
        if member.node not in cluster.cut_off
        for trace in node.traces
    }
    ranks = cluster.ranks(plan).values()
    ended = {rank.rank for rank in ranks if rank.has_finished or rank.has_left}
    return judge_late(traces, ended, plan.world_size)


def _of_culprits(
    arrival: Arrival, surest: Finding, cluster: Cluster, plan: Plan
) -> Incident | None:
    """The victim's silence is acted on, and whoever it waits for is named."""
    member = next((m for m in plan.members if arrival.culprits[0] in m.ranks), None)
    node = None if member is None else cluster.nodes.get(member.node)
    if member is None or node is None:
        return None
    culprits = [rank for rank in arrival.culprits if rank in member.ranks]
    victim = f"{surest.evidence[0]}; it waits for others" if surest.evidence else ""
    return Incident(
        "",
        plan.attempt,
        surest.kind.value,
        member.node,
        culprits,
        arrival.confidence,
        since_unix_s=fault_time.of_hang(culprits, node.findings, surest.since_unix_s),
        evidence=[*arrival.evidence, *filter(None, [victim])],
        signature=_signature(arrival, cluster, plan),
    )


def _of_nobody(arrival: Arrival, surest: Finding, plan: Plan) -> Incident:
    """All came and nothing comes of it: whoever was silent longest is no more to blame for it."""
    evidence = [*arrival.evidence, "so no rank is to blame, but what connects them"]
    return Incident(
        "",
        plan.attempt,
        surest.kind.value,
        since_unix_s=surest.since_unix_s,
        evidence=[*evidence, *surest.evidence],
    )


def _signature(arrival: Arrival, cluster: Cluster, plan: Plan) -> str:
    """What makes two such hangs the same: the same calls part at the same step."""
    rank = cluster.ranks(plan).get(arrival.culprits[0])
    if not arrival.signature or rank is None:
        return ""
    return f"{arrival.signature} at step {rank.step}"


def _incident(
    plan: Plan, finding: Finding, signature: str, reasons: Iterable[str] = ()
) -> Incident:
    more = [reason for reason in reasons if reason not in finding.evidence]
    return Incident(
        "",
        plan.attempt,
        finding.kind.value,
        finding.node,
        list(finding.ranks),
        finding.confidence,
        since_unix_s=finding.since_unix_s,
        evidence=[*finding.evidence, *more],
        signature=signature,
    )
