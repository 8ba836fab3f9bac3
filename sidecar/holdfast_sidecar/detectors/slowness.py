"""Who is slow, as findings: from how the job stands, as it was judged for all ranks together."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.config.settings import StragglerSettings
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.steps import Slowness, SlowStanding

FRESH_S = 60.0
FRESH_STEPS = 30.0
"""After so long, and so many steps of the usual length, without a judgement the job does something
else or hangs: who was slow before is no trouble of that. A frame has 16 steps at most where they
are shorter than seconds, and one or two where they are longer."""


def find_slow(
    standing: SlowStanding | None, attempt: int, settings: StragglerSettings, now_unix_s: float
) -> Iterator[Finding]:
    """One per trouble that stands in this attempt; told by the leader about all nodes."""
    if standing is None or standing.attempt != attempt or not is_fresh(standing, now_unix_s):
        return
    for slow in standing.slow:
        if max(slow.slowdown, slow.gain) >= settings.least_slowdown:
            yield _tell(slow)


def is_fresh(standing: SlowStanding, now_unix_s: float) -> bool:
    """Whether it may still be so."""
    step_s = 0.0 if standing.efficiency is None else standing.efficiency.step_s or 0.0
    return now_unix_s - standing.at_unix_s <= max(FRESH_S, FRESH_STEPS * step_s)


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
