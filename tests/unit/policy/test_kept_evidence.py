"""What nodes kept of an incident, in the leader's record of it."""

from __future__ import annotations

import dataclasses

from holdfast_sidecar.policy.cluster import Cluster, parse_cluster
from holdfast_sidecar.policy.outcome import note_bundles, with_keepers, with_places
from holdfast_sidecar.records.codec import decode, encode
from holdfast_sidecar.records.plan import Incident
from holdfast_sidecar.records.reports import NodeReport
from holdfast_sidecar.store.protocol import Lease, Section, View

HANG = Incident("i1", 0, "hang", "b", [3], 0.95, detected_unix_s=5.0, evidence=["it is stopped"])


def node(name: str, **given: object) -> NodeReport:
    report = NodeReport(name, "x", 1, 0, 1, 0, True)
    return dataclasses.replace(report, **given)  # type: ignore[arg-type]


def cluster(*nodes: NodeReport, incident: Incident = HANG) -> Cluster:
    sections = {
        Section.NODES: {one.node: encode(one) for one in nodes},
        Section.INCIDENTS: {incident.identifier: encode(incident)},
    }
    return parse_cluster(View(Lease(1, "a/x"), "server", sections))


def test_where_all_ranks_stood_becomes_one_reason_told_once() -> None:
    waiting = "in all_reduce (train.py:30)"
    seen = cluster(
        node("a", evidence_for="i1", where_ranks_stood={"0": waiting, "1": waiting}),
        node("b", evidence_for="i1", where_ranks_stood={"2": waiting, "3": "stopped", "x": "?"}),
        node("c", evidence_for="older", where_ranks_stood={"4": "elsewhere"}),
    )
    told = with_places(seen, HANG)
    assert told.evidence == [
        "it is stopped",
        "rank 3 stopped; ranks 0-2 in all_reduce (train.py:30)",
    ]
    assert with_places(seen, told) == told


def test_where_ranks_stood_is_no_reason_for_anything_but_a_hang() -> None:
    seen = cluster(node("a", evidence_for="i1", where_ranks_stood={"0": "in step (train.py:3)"}))
    diverged = dataclasses.replace(HANG, cause="nonfinite")
    assert with_places(seen, diverged) == diverged


def test_without_stacks_nothing_is_added() -> None:
    assert with_places(cluster(node("a", evidence_for="i1")), HANG) == HANG


def test_who_kept_evidence_is_remembered_after_it_has_turned_to_the_next_incident() -> None:
    first = with_keepers(cluster(node("b", evidence_for="i1"), node("a")), HANG)
    assert first.kept_by == ["b"]
    assert with_keepers(cluster(node("a", evidence_for="i1")), first).kept_by == ["a", "b"]


def test_where_bundles_lie_is_written_down_once_the_incident_is_over() -> None:
    packed = {"i1": "host-b:/state/job/b/incidents/i1.tar.gz", "unknown": "host-b:/x"}
    assert note_bundles(cluster(node("b", bundles=packed))) == ()
    over = dataclasses.replace(HANG, recovered_unix_s=9.0, bundles={"a": "host-a:/y"})
    (write,) = note_bundles(cluster(node("b", bundles=packed), incident=over))
    assert write.value is not None
    noted = decode(Incident, write.value)
    assert noted is not None
    assert noted.bundles == {"a": "host-a:/y", "b": packed["i1"]}
    assert noted.kept_by == ["a", "b"]
    assert note_bundles(cluster(node("b", bundles=packed), incident=noted)) == ()
