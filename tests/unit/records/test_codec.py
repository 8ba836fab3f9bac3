"""What is read of records that newer sidecars wrote."""

from __future__ import annotations

import json

from tests.unit.records.slow_job import slow

from holdfast_sidecar.records.codec import decode, encode
from holdfast_sidecar.records.findings import Finding, Kind, Remedy
from holdfast_sidecar.records.reports import NodeReport
from holdfast_sidecar.records.steps import SlownessReport


def test_a_node_whose_sidecar_finds_what_is_new_to_us_is_heard_all_the_same() -> None:
    findings = [
        Finding(Kind.LINK_DOWN, "a", 1.0, 0.9, remedy=remedy)
        for remedy in (Remedy.NONE, Remedy.REPLACE, Remedy.NONE)
    ]
    told = json.loads(encode(NodeReport("a", "i", 7, 1, 1, 1, True, findings=findings)))
    told["findings"][0]["kind"] = "a_kind_to_come"
    told["findings"][1]["remedy"] = "a_remedy_to_come"
    report = decode(NodeReport, json.dumps(told))
    assert report is not None
    assert (report.beat, report.findings) == (7, findings[2:])


def test_what_is_no_finding_at_all_is_no_report() -> None:
    told = json.loads(encode(NodeReport("a", "i", 7, 1, 1, 1, True)))
    told["findings"] = [{"kind": "link_down"}]
    assert decode(NodeReport, json.dumps(told)) is None


def test_a_standing_is_read_without_whom_only_newer_leaders_can_name_a_cause_for() -> None:
    both = [slow(0), slow(1)]
    standing = SlownessReport(1, 8, 2, 5.0, both)
    told = json.loads(encode(NodeReport("a", "i", 7, 1, 1, 1, True, slow=standing)))
    told["slow"]["slow"][0]["cause"] = "a_cause_to_come"
    report = decode(NodeReport, json.dumps(told))
    assert report is not None
    assert report.slow is not None
    assert report.slow.slow == both[1:]


def test_a_report_of_a_sidecar_that_knows_nothing_of_slowness_is_read() -> None:
    told = json.loads(encode(NodeReport("a", "i", 7, 1, 1, 1, True)))
    del told["steps"], told["slow"]
    assert decode(NodeReport, json.dumps(told)) == NodeReport("a", "i", 7, 1, 1, 1, True)
