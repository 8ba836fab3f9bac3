"""What may be done about a fault: act, suggest or observe. One mode for all, or one for each."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from holdfast_sidecar.config.settings import ModeSettings, Settings
from holdfast_sidecar.records.reports import NodeReport

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
