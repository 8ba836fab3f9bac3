"""What this sidecar reports, as others read it and as it meets it again itself."""

from __future__ import annotations

import dataclasses

from tests.unit.records.slow_job import SLOW

from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.policy.cluster import parse_cluster
from holdfast_sidecar.records.checkpoint import FileFact, SavedPart, SnapshotReport
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.collectives import RankTrace
from holdfast_sidecar.records.findings import Finding, Kind, Remedy
from holdfast_sidecar.records.reports import GateVerdict, NodeReport, RankReport
from holdfast_sidecar.records.steps import Efficiency, SlownessReport, WhatIf
from holdfast_sidecar.store.protocol import Lease, OwnReport, Section, View

FULL = NodeReport(
    node="a",
    incarnation="i",
    beat=7,
    floor_attempt=1,
    floor_epoch=2,
    attempt=1,
    launcher_alive=True,
    ranks=[
        RankReport(
            0,
            0,
            11,
            5,
            "forward",
            0.25,
            0.5,
            0.4,
            loss=1.5,
            layout="dp=0/2",
            groups=["mesh_dp/3fa2c1/2"],
        )
    ],
    findings=[Finding(Kind.LINK_DOWN, "a", 1.0, 0.9, evidence=["lost"], remedy=Remedy.REPLACE)],
    traces=[RankTrace(0, groups={"world": 2}, messages_to=[1])],
    bundles={"x": "host:/x"},
    saved=SavedPart("c", {"0": "done"}, {"f": FileFact(1, "00")}),
    snapshot=SnapshotReport(held={"0": [5, 4]}, copied_for={"p": "copied"}),
    checkpoint=CheckpointSettings(),
    gate=GateVerdict("unfit", ["a reason"], 3.0, gpus=None),
    steps=["0 8 8 8 1000"],
    slow=SlownessReport(
        attempt=1,
        step=8,
        judged_ranks=2,
        at_unix_s=5.0,
        slow=[SLOW],
        what_ifs=[WhatIf("rank 0", "rank", 0.2, 1.0)],
        lost_s={"link": 1.0},
        efficiency=Efficiency(mfu=0.4),
    ),
)


def later(report: NodeReport) -> NodeReport:
    return dataclasses.replace(report, beat=report.beat + 1)


def test_others_read_what_was_reported_at_every_beat() -> None:
    own = OwnReport()
    changed = dataclasses.replace(later(FULL), doubts=True)
    for report in (FULL, later(FULL), changed, later(changed)):
        assert decode(NodeReport, own.spell(report)) == report


def test_a_beat_with_nothing_new_is_not_spelt_anew() -> None:
    own = OwnReport()
    first = own.spell(FULL)
    spelt = own._spelt
    assert own.spell(later(FULL)) == first.replace('"beat":7', '"beat":8')
    assert own._spelt is spelt


def test_its_own_newest_text_is_met_again_and_no_other() -> None:
    own = OwnReport()
    earlier, newest = own.spell(FULL), own.spell(later(FULL))
    other = OwnReport().spell(dataclasses.replace(FULL, node="b"))
    assert own.recognise(newest) == later(FULL)
    assert own.recognise(earlier) is own.recognise(other) is OwnReport().recognise("") is None


def test_a_cluster_has_the_same_of_it_as_if_it_had_been_parsed() -> None:
    own = OwnReport()
    texts = {"b": OwnReport().spell(dataclasses.replace(FULL, node="b")), "a": own.spell(FULL)}
    view = View(Lease(1, "a/i"), "server", {Section.NODES: {**texts, "c": "torn"}})
    cluster = parse_cluster(view, own.recognise)
    assert cluster == parse_cluster(view)
    assert cluster.nodes["a"] is FULL
