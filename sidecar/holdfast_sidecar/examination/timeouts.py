"""The timeout ladder, rung by rung: ours among themselves, and beside those of others."""

from __future__ import annotations

from holdfast_sidecar.config import timeouts
from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.config.timeouts import Surroundings, foreign_rungs, torchrun_rung
from holdfast_sidecar.examination.check import FAIL, NOTE, OK, Check


def check_timeouts(settings: Settings, around: Surroundings | None = None) -> list[Check]:
    """One line per rung, lowest first; whatever else doesn't fit together follows."""
    rungs = [(rung, FAIL) for rung in timeouts.rungs(settings)]
    if around is not None:
        rungs += [(rung, FAIL) for rung in foreign_rungs(settings, around)]
        rungs.append((torchrun_rung(settings), NOTE))
    rungs.sort(key=lambda pair: (pair[0].lower_s, pair[0].upper_s))
    steps = [_judge(rung, broken) for rung, broken in rungs]
    return steps + [Check("settings", FAIL, line) for line in timeouts.misfits(settings)]


def _judge(rung: timeouts.Rung, broken: str) -> Check:
    line = f"{rung.lower_name} = {rung.lower_s:g} s < {rung.upper_name} = {rung.upper_s:g} s"
    if rung.holds:
        return Check("timeouts", OK, line)
    return Check("timeouts", broken, f"{line} does not hold: {rung.why}")
