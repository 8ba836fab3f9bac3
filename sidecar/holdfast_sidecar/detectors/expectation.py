"""How long a phase of a rank may last, from what the same phase took so far in this attempt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.page import Phase
from holdfast_sidecar.config.settings import StallSettings
from holdfast_sidecar.observation import RankHistory

MEASURED: Mapping[Phase, str] = {
    Phase.DATA: "data",
    Phase.FORWARD: "forward",
    Phase.BACKWARD: "backward",
    Phase.COMMUNICATING: "communicating",
    Phase.OPTIMIZER: "optimizer",
    Phase.IDLE: "other",
    Phase.TRANSFERRING: "transfer",
}
"""The phases of an ordinary step. The others (starting, restoring, compiling, saving, evaluating)
come rarely and vary without bound, so they get a fixed allowance."""

STEPS_TO_TRUST = 3
"""Steps beyond the warm-up before a phase's past says something about its future."""

USUAL_SHARE = 0.99
"""Until a hundred steps are known this is the slowest of them; from then on what happens once in a
thousand steps (an evaluation that no hook sees) no longer hides a hang in all the others."""


@dataclass(frozen=True)
class Expectation:
    """Seconds: what the phase takes at most as a rule, and from when on its silence is a stall."""

    normal_s: float
    limit_s: float
    is_measured: bool


def expect(history: RankHistory, settings: StallSettings) -> Expectation:
    """What to expect of the phase this rank is in now.

    Within a step a phase may occur several times; that their sum is what is learnt only errs
    towards patience. `stall.limit_s` overrides every limit, learnt or given.
    """
    phase = history.look.phase
    is_measured = phase in MEASURED and history.pace.steps_learnt >= STEPS_TO_TRUST
    if is_measured:
        normal_s = history.pace.parts[MEASURED[phase]].quantile_s(USUAL_SHARE)
        limit_s = max(settings.floor_s, settings.factor * normal_s)
    else:
        fixed_s = settings.save_s if phase is Phase.SAVING else settings.first_step_s
        normal_s = limit_s = max(settings.floor_s, fixed_s)
    return Expectation(normal_s, settings.limit_s or limit_s, is_measured)
