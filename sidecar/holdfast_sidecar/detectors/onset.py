"""Since when a finding stands: the same trouble seen again keeps its first time."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from holdfast_sidecar.findings import Finding


def keep_onsets(findings: Iterable[Finding], before: Sequence[Finding]) -> list[Finding]:
    """The findings with the earliest `since_unix_s` known for each of them."""
    known = {finding.key: finding.since_unix_s for finding in before}
    return [
        dataclasses.replace(
            finding,
            since_unix_s=min(finding.since_unix_s, known.get(finding.key, finding.since_unix_s)),
        )
        for finding in findings
    ]


def newly_found(findings: Iterable[Finding], before: Sequence[Finding]) -> list[Finding]:
    """Those that were not there a moment ago."""
    known = {finding.key for finding in before}
    return [finding for finding in findings if finding.key not in known]


def no_longer_found(findings: Iterable[Finding], before: Sequence[Finding]) -> list[Finding]:
    """Those that were there a moment ago and are not any more."""
    return newly_found(before, list(findings))
