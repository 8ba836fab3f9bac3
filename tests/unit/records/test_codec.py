"""What is read of records that newer sidecars wrote."""

from __future__ import annotations

import json

from holdfast_sidecar.findings import Finding, Kind
from holdfast_sidecar.records.codec import decode, encode
from holdfast_sidecar.records.node import NodeReport
from holdfast_sidecar.remedy import Remedy


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
