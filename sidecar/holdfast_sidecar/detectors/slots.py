"""A node whose ranks have fewer slots for snapshots than the settings wish for, or none."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.records.checkpoint import SnapshotReport
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.findings import Finding, Kind


def find_missing_slots(report: SnapshotReport | None, moment: Moment) -> Iterator[Finding]:
    """What there is too little of, and what was to be had."""
    if report is not None and report.short_of:
        yield Finding(
            Kind.NO_SNAPSHOTS,
            moment.node,
            moment.now_unix_s,
            1.0,
            evidence=[report.obstacle],
            what=report.short_of,
        )
