"""What may be done about a fault: act, suggest or observe. One mode for all, or one for each."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping

from holdfast_sidecar.config.settings import ModeSettings, Settings
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.reports import Exit, NodeReport, RankReport

OF_CAUSE = {
    "hang": "hang",
    "stall": "stall",
    "data_stall": "stall",
    "nonfinite": "numbers",
    "spike": "numbers",
    "gpu": "gpu",
    "link": "link",
    "host": "host",
    "straggler": "straggler",
    "quarantine": "quarantine",
}
"""Cause -> name of the fault in the settings. What ends ranks by itself (a crash, a lost node) is
no choice of ours: its attempt is over, and the budget alone says whether there is another."""


def setting_of(cause: str) -> str:
    """The setting that says what may be done about this cause, whatever another one says."""
    return f"modes.{OF_CAUSE[cause]}" if cause in OF_CAUSE else "sidecar.mode"


def explicit(settings: ModeSettings) -> dict[str, str]:
    """Those that somebody set."""
    return {name: mode for name, mode in dataclasses.asdict(settings).items() if mode}


def mode_for(cause: str, general: str, of_fault: Mapping[str, str]) -> str:
    """What may be done about this cause."""
    return of_fault.get(OF_CAUSE.get(cause, cause), general)


def mode_on(node: NodeReport, cause: str) -> str:
    """The same on a node, as its sidecar reports it: who would act decides for itself."""
    return mode_for(cause, node.mode, node.modes)


def mode_of_job(settings: Settings, cause: str) -> str:
    """The same for what concerns the whole job: the leader's."""
    return mode_for(cause, settings.sidecar.mode, explicit(settings.modes))


# When a fault began, which is mostly before anybody noticed: an incident's cost counts from there.
#
# Pure. Times are wall clock: of the node that tells of its ranks, else of the leader.

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
