"""What would have been done about a fault and was not: its mode forbids it, or the job is paused.

It is recorded as an incident all the same, and closed when the fault is over by itself: by such
incidents people judge whether Holdfast may act.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from holdfast_sidecar.coordination.keys import Section
from holdfast_sidecar.coordination.reports import WITHHELD, Incident, Plan, encode
from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.decisions.culprit import name_culprit
from holdfast_sidecar.decisions.divergence import find_divergence
from holdfast_sidecar.decisions.modes import mode_of_job, mode_on
from holdfast_sidecar.decisions.outcome import Circumstances, Write, amend
from holdfast_sidecar.findings import Finding, Kind

ASKS_FOR_MORE = (Kind.HANG, Kind.STALL, Kind.DATA_STALL)
"""Kinds of findings for which ranks are ended, where they are sure enough."""

AGAIN_S = 60.0
"""A fault that comes back within a minute is the same: one that flickers makes no series."""


def acting_findings(cluster: Cluster, plan: Plan) -> list[tuple[Finding, str]]:
    """What the members found that is sure enough to act on, each with the mode of its node."""
    return [
        (finding, mode_on(node, finding.kind.value))
        for member in plan.members
        if (node := cluster.nodes.get(member.node)) is not None and node.attempt == plan.attempt
        for finding in node.findings
        if finding.acts and finding.kind in ASKS_FOR_MORE
    ]


def record(cluster: Cluster, plan: Plan, circumstances: Circumstances) -> tuple[Write, ...]:
    """Open an incident for a fault that nothing is done about; close it once that is over."""
    now = circumstances.now_unix_s
    found = [*acting_findings(cluster, plan), *_bad_numbers(cluster, plan, circumstances)]
    withheld = [
        (finding, "paused" if plan.pause is not None else mode)
        for finding, mode in found
        if plan.pause is not None or mode != "act"
    ]
    known = [i for i in _of_attempt(cluster, plan) if not i.ended_unix_s]
    is_open = [incident for incident in known if not incident.recovered_unix_s]
    if not withheld:
        return tuple(amend(cluster, _over(incident, now)) for incident in is_open)
    if is_open:
        return ()
    # The same who would be named if it were acted on: whoever is silent may only wait for another.
    named = name_culprit([one for one, _ in withheld], cluster, plan, is_acted_on=False)
    if named is None:
        return ()
    earlier = next((i for i in known if _is_again(i, named, now)), None)
    if earlier is not None:
        return (amend(cluster, dataclasses.replace(earlier, recovered_unix_s=0.0)),)
    _, mode = max(withheld, key=lambda pair: pair[0].confidence)
    incident = _incident(cluster, plan, named, mode, circumstances)
    return (Write(Section.INCIDENTS, incident.identifier, encode(incident), None),)


def _bad_numbers(
    cluster: Cluster, plan: Plan, circumstances: Circumstances
) -> Iterator[tuple[Finding, str]]:
    """Numbers that are wrong on all ranks, as if one of them had found it."""
    settings = circumstances.settings
    diverged = find_divergence(cluster, plan, settings, circumstances.now_unix_s)
    if diverged is not None:
        finding = Finding(
            Kind(diverged.cause),
            diverged.culprit_node,
            diverged.since_unix_s,
            diverged.confidence,
            diverged.culprit_ranks,
            diverged.evidence,
        )
        yield finding, mode_of_job(settings, diverged.cause)


def overtaken(cluster: Cluster, plan: Plan, now_unix_s: float) -> tuple[Write, ...]:
    """The attempt ends for another reason: what is open then will not be over by itself."""
    return tuple(
        amend(cluster, dataclasses.replace(incident, ended_unix_s=now_unix_s))
        for incident in _of_attempt(cluster, plan)
        if not incident.recovered_unix_s and not incident.ended_unix_s
    )


def _of_attempt(cluster: Cluster, plan: Plan) -> Iterator[Incident]:
    for incident in cluster.incidents.values():
        if incident.decided in WITHHELD and incident.attempt == plan.attempt:
            yield incident


def _over(incident: Incident, now: float) -> Incident:
    # Nothing was ended, so nothing has to be done again.
    return dataclasses.replace(
        incident, recovered_unix_s=now, step_resumed=max(incident.step_reached, 0)
    )


def _is_again(incident: Incident, named: Incident, now: float) -> bool:
    is_same = (incident.cause, incident.culprit_node, incident.culprit_ranks) == (
        named.cause,
        named.culprit_node,
        named.culprit_ranks,
    )
    return is_same and now - incident.recovered_unix_s <= AGAIN_S


def _incident(
    cluster: Cluster, plan: Plan, named: Incident, mode: str, circumstances: Circumstances
) -> Incident:
    steps = (rank.step for rank in cluster.ranks(plan).values())
    return dataclasses.replace(
        named,
        identifier=circumstances.new_identifier,
        detected_unix_s=circumstances.now_unix_s,
        decided=mode,
        step_reached=max(steps, default=0),
        evidence=[*named.evidence, f"would have restarted the job, but {_why(mode)}"],
    )


def _why(mode: str) -> str:
    return "it is paused" if mode == "paused" else f"the mode is {mode}"
