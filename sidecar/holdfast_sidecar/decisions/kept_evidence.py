"""What the nodes kept of an incident, as the leader writes it into the record."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.decisions.outcome import Write, amend
from holdfast_sidecar.decisions.warrant import HANGS
from holdfast_sidecar.ranks.stack_dumps import tell_places
from holdfast_sidecar.records.plan import Incident


def with_keepers(cluster: Cluster, incident: Incident) -> Incident:
    """The incident with the nodes that have evidence of it on disk by now."""
    kept = {n.node for n in cluster.nodes.values() if n.evidence_for == incident.identifier}
    return dataclasses.replace(incident, kept_by=sorted(kept | set(incident.kept_by)))


def with_places(cluster: Cluster, incident: Incident) -> Incident:
    """A hang with one more reason: where the culprit stood, and where those that waited."""
    if incident.cause not in HANGS:
        return incident
    places = {
        int(rank): where
        for node in cluster.nodes.values()
        if node.evidence_for == incident.identifier
        for rank, where in node.where_ranks_stood.items()
        if rank.isdecimal()
    }
    told = tell_places(places, incident.culprit_ranks)
    if not told or told in incident.evidence:
        return incident
    return dataclasses.replace(incident, evidence=[*incident.evidence, told])


def note_bundles(cluster: Cluster) -> tuple[Write, ...]:
    """Incidents that are over, with where each node packed what it kept."""
    return tuple(
        amend(
            cluster,
            dataclasses.replace(incident, bundles=bundles, kept_by=_keepers(incident, bundles)),
        )
        for incident in cluster.incidents.values()
        if incident.recovered_unix_s
        and (bundles := _bundles(cluster, incident)) != incident.bundles
    )


def _keepers(incident: Incident, bundles: Mapping[str, str]) -> list[str]:
    """After a crash nobody waited for evidence: who kept some is known by what it packed."""
    return sorted({*incident.kept_by, *bundles})


def _bundles(cluster: Cluster, incident: Incident) -> dict[str, str]:
    packed = {
        node.node: node.bundles[incident.identifier]
        for node in cluster.nodes.values()
        if incident.identifier in node.bundles
    }
    return {**incident.bundles, **packed}
