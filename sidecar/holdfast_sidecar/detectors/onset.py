"""Since when a finding stands: the same trouble seen again keeps its first time."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from holdfast_sidecar.records.findings import Finding


def keep_onsets(findings: Iterable[Finding], before: Sequence[Finding]) -> list[Finding]:
    """The findings with the earliest `since_unix_s` known for each of them."""
    known = {_trouble(finding): finding.since_unix_s for finding in before}
    return [
        dataclasses.replace(
            finding,
            since_unix_s=min(
                finding.since_unix_s, known.get(_trouble(finding), finding.since_unix_s)
            ),
        )
        for finding in findings
    ]


def _trouble(finding: Finding) -> tuple[object, ...]:
    """A GPU's is the same whosever rank it is: an attempt that goes on in spite of it has other
    ranks, or none yet."""
    if finding.gpu:
        return finding.kind, finding.node, finding.gpu, finding.what
    return finding.key


def newly_found(findings: Iterable[Finding], before: Sequence[Finding]) -> list[Finding]:
    """Those that were not there a moment ago."""
    known = {finding.key for finding in before}
    return [finding for finding in findings if finding.key not in known]


def no_longer_found(findings: Iterable[Finding], before: Sequence[Finding]) -> list[Finding]:
    """Those that were there a moment ago and are not any more."""
    return newly_found(before, list(findings))
