"""When a fault began, which is mostly before anybody noticed: an incident's cost counts from there.

Pure. Times are wall clock: of the node that tells of its ranks, else of the leader.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.reports import Exit, RankReport

GAVE_UP = re.compile(r"timed out|timeout", re.IGNORECASE)
"""What a rank says that waited for another one for as long as torch allows: minutes, by default."""

SILENCE = frozenset({Kind.HANG, Kind.STALL, Kind.DATA_STALL})


def of_crash(exit_: Exit, report: RankReport | None = None) -> float:
    """The moment of death, unless the job had stood still before: of a rank that its sidecar found
    silent for too long before it died its last progress, of one that gave up waiting its last step.
    """
    died, last = exit_.at_unix_s, 0.0
    if report is not None and report.stood_since_unix_s:
        last = report.stood_since_unix_s
    elif GAVE_UP.search(exit_.message):
        last = exit_.stepped_unix_s
    return min(last, died) if last else died


def of_hang(culprits: Collection[int], found: Iterable[Finding], otherwise: float) -> float:
    """The last progress of whoever is to blame, as its own node tells it: its victims may have come
    to where they wait long before, or after. `otherwise`: nothing is told of it."""
    of_culprits = (
        finding.since_unix_s
        for finding in found
        if finding.kind in SILENCE and set(finding.ranks) & set(culprits)
    )
    return min(of_culprits, default=otherwise)


def of_lost_node(silent_s: float, now_unix_s: float) -> float:
    """Its last heartbeat."""
    return now_unix_s - silent_s


def of_numbers(onset_step: int, ranks: Iterable[RankReport], now_unix_s: float) -> float:
    """The end of the step that was the first to tell them, by the pace of the slowest rank."""
    since_s = (max(0, rank.step - onset_step) * rank.step_s for rank in ranks)
    return now_unix_s - max(since_s, default=0.0)
