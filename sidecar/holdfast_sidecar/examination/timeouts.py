"""The timeout ladder, rung by rung."""

from __future__ import annotations

from holdfast_sidecar import ladder
from holdfast_sidecar.examination.check import FAIL, OK, Check
from holdfast_sidecar.settings import Settings


def check_timeouts(settings: Settings) -> list[Check]:
    """One line per rung; whatever else doesn't fit together follows."""
    steps = [
        Check(
            "timeouts",
            OK if rung.holds else FAIL,
            f"{rung.lower_name} = {rung.lower_s:g} s < {rung.upper_name} = {rung.upper_s:g} s"
            + ("" if rung.holds else f" does not hold: {rung.why}"),
        )
        for rung in ladder.rungs(settings)
    ]
    return steps + [Check("settings", FAIL, line) for line in ladder.misfits(settings)]
