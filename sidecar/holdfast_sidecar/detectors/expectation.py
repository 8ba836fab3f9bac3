"""How long a phase of a rank may last, from what the same phase took in its latest steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from holdfast.page import Phase, Record
from holdfast_sidecar.observation import RankHistory
from holdfast_sidecar.settings import StallSettings

MEASURED: Mapping[Phase, Callable[[Record], int]] = {
    Phase.DATA: lambda record: record.data_us,
    Phase.FORWARD: lambda record: record.forward_us,
    Phase.BACKWARD: lambda record: record.backward_us,
    Phase.COMMUNICATING: lambda record: record.communicating_us,
    Phase.OPTIMIZER: lambda record: record.optimizer_us,
    Phase.IDLE: lambda record: record.other_us,
}
"""The phases of an ordinary step. The others (starting, restoring, compiling, saving, evaluating)
come rarely and vary without bound, so they get a fixed allowance."""

STEPS_TO_TRUST = 3
"""The first step warms caches, the second still rebuilds DDP's buckets: from the third on a
phase's past says something about its future."""


@dataclass(frozen=True)
class Expectation:
    """Seconds: what the phase took at most, and from when on its silence is a stall."""

    normal_s: float
    limit_s: float
    is_measured: bool


def expect(history: RankHistory, settings: StallSettings) -> Expectation:
    """What to expect of the phase this rank is in now.

    The largest of the latest steps rather than a quantile: a step that was once that slow can be
    so again. Within a step a phase may occur several times; their sum only errs towards patience.
    """
    phase = history.look.phase
    if phase not in MEASURED or len(history.records) < STEPS_TO_TRUST:
        fixed_s = settings.save_s if phase is Phase.SAVING else settings.first_step_s
        allowance_s = max(settings.floor_s, fixed_s)
        return Expectation(allowance_s, allowance_s, is_measured=False)
    normal_s = max(MEASURED[phase](record) for record in history.records) / 1e6
    limit_s = max(settings.floor_s, settings.factor * normal_s)
    return Expectation(normal_s, limit_s, is_measured=True)
