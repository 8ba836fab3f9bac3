"""A rank as this sidecar reports it to the others."""

from __future__ import annotations

from holdfast.page import Flag, Word
from holdfast_sidecar.coordination.reports import RankReport
from holdfast_sidecar.observation import Moment, RankHistory, is_finite, own_s, step_s
from holdfast_sidecar.settings import StragglerSettings

STEPS_OF_PACE = 16
"""The pace by which a checkpoint's step is chosen ahead: recent, and deaf to one odd step."""


def report_rank(history: RankHistory, settings: StragglerSettings, moment: Moment) -> RankReport:
    """The report of one rank."""
    look = history.look
    return RankReport(
        rank=look.rank,
        local_rank=look.identity.local_rank,
        pid=look.identity.pid,
        step=look.step,
        phase=look.phase.name.lower(),
        phase_age_s=round(max(0.0, moment.now_s - look.moved_s), 3),
        step_s=round(step_s(history.records, STEPS_OF_PACE), 6),
        own_s=round(own_s(history.records, settings.steps), 6),
        loss=look.loss if is_finite(look.loss) else None,
        is_loss_finite=look.loss is None or is_finite(look.loss),
        nonfinite_losses=look.words[Word.NONFINITE],
        onset_step=history.onset_step,
        ending=look.words[Word.ENDING],
        alive=not look.is_gone,
        state_registered=look.has(Flag.STATE_REGISTERED),
        resumed_step=look.words[Word.RESUMED_STEP],
        in_loop=look.has(Flag.LOOP_WRAPPED),
        resume_failures=look.words[Word.RESUME_FAILURES],
    )
