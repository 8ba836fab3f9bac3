from __future__ import annotations

import pytest
from tests.unit.ranks.scene import moment

from holdfast_sidecar.ranks.checks import find_missing_slots
from holdfast_sidecar.records.checkpoint import SnapshotReport
from holdfast_sidecar.records.findings import Kind


def test_what_there_is_too_little_of_is_named_with_the_reckoning() -> None:
    report = SnapshotReport(3, 1, True, "snapshots: 2 ranks x 1 slot x 0.9 GB", "memory")
    (finding,) = find_missing_slots(report, moment(10.0))
    assert (finding.kind, finding.what, finding.acts) == (Kind.NO_SNAPSHOTS, "memory", False)
    assert finding.evidence == ["snapshots: 2 ranks x 1 slot x 0.9 GB"]


@pytest.mark.parametrize("report", [None, SnapshotReport(), SnapshotReport(3, 3, True)])
def test_nothing_is_missing_where_nothing_was_wished_or_all_is_there(
    report: SnapshotReport | None,
) -> None:
    assert not list(find_missing_slots(report, moment(10.0)))
