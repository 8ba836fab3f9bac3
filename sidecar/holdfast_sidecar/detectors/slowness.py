"""Who is slow, as findings: from how the job stands, as it was judged for all ranks together."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.findings import Finding, Kind
from holdfast_sidecar.records.slowness import Slowness, SlowStanding
from holdfast_sidecar.settings import StragglerSettings


def find_slow(
    standing: SlowStanding | None, attempt: int, settings: StragglerSettings
) -> Iterator[Finding]:
    """One per trouble that stands in this attempt; told by the leader about all nodes."""
    if standing is None or standing.attempt != attempt:
        return
    for slow in standing.slow:
        if max(slow.slowdown, slow.gain) >= settings.least_slowdown:
            yield _tell(slow)


def _tell(slow: Slowness) -> Finding:
    return Finding(
        kind=Kind.STRAGGLER,
        node=slow.node,
        since_unix_s=slow.since_unix_s,
        confidence=slow.confidence,
        ranks=list(slow.ranks),
        evidence=[*slow.evidence, *([slow.advice] if slow.advice else [])],
        what=slow.cause.value,
    )
