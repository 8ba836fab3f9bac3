"""What was found, as a live view shows it."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast_sidecar.incidents.explain import whom
from holdfast_sidecar.live.view import FindingView
from holdfast_sidecar.records.findings import Finding

SHOWN = 200
"""What has more to say than this has one trouble, not two hundred."""

LONGEST = 300
"""Characters: a stack belongs to `holdfast explain`."""


def findings_of(findings: Iterable[Finding]) -> list[FindingView]:
    """What is acted on first; then the oldest."""
    ordered = sorted(findings, key=lambda one: (not one.acts, one.since_unix_s, one.key))
    return [_view(finding) for finding in ordered[:SHOWN]]


def _view(finding: Finding) -> FindingView:
    evidence = " ".join(("; ".join(finding.evidence) or finding.what).split())
    told = f": {evidence}" if evidence else ""
    return FindingView(
        kind=finding.kind.value,
        node=finding.node,
        rank=finding.ranks[0] if len(finding.ranks) == 1 else None,
        since_unix_s=finding.since_unix_s,
        acts=finding.acts,
        words=f"{whom(finding.node, finding.ranks)}{told}"[:LONGEST],
    )
