"""A rank as this sidecar reports it to the others."""

from __future__ import annotations

from holdfast.page import GROUPS_TIMED, Ending, Flag, Word, bits_float, uses_gloo_alone
from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.detectors.stall import stood_since_s
from holdfast_sidecar.observation import RankHistory, RankLook, is_finite, own_s, step_s
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.reports import UNMETERED, RankEnergy, RankReport
from holdfast_sidecar.records.steps import NOWHERE, Standing

STEPS_OF_PACE = 16
"""The pace by which a checkpoint's step is chosen ahead: recent, and deaf to one odd step."""

TELLS_OF_A_STOP_S = 60.0
"""So long after: nodes that are continued one after the other take seconds."""


def report_rank(
    history: RankHistory,
    settings: Settings,
    moment: Moment,
    energy: RankEnergy = UNMETERED,
    standing: Standing = NOWHERE,
) -> RankReport:
    """The report of one rank."""
    look, spike = history.look, history.numbers.spike
    norm = look.gradient_norm
    stood_s = stood_since_s(history, settings.stall, moment)
    return RankReport(
        rank=look.rank,
        local_rank=look.identity.local_rank,
        pid=look.identity.pid,
        step=look.step,
        phase=look.phase.name.lower(),
        phase_age_s=round(max(0.0, moment.now_s - look.moved_s), 3),
        step_s=round(step_s(history.whole_steps, STEPS_OF_PACE), 6),
        own_s=round(own_s(history.whole_steps, STEPS_OF_PACE), 6),
        loss=look.loss if is_finite(look.loss) else None,
        is_loss_finite=look.loss is None or is_finite(look.loss),
        nonfinite_losses=look.words[Word.NONFINITE],
        onset_step=history.onset_step,
        gradient_norm=norm if is_finite(norm) else None,
        is_gradient_finite=norm is None or is_finite(norm),
        nonfinite_gradients=look.words[Word.NONFINITE_GRADIENTS],
        ill_steps=history.numbers.ill_steps,
        spike_onset=-1 if spike is None else spike.onset_step,
        spikes=history.numbers.spikes,
        power_w=energy.power_w,
        tokens_per_s=energy.tokens_per_s,
        layout=standing.layout,
        groups=list(standing.groups),
        busy=look.busy,
        stopped_ago_s=_told_stop_s(history),
        stood_since_unix_s=0.0 if stood_s is None else moment.unix_s(stood_s),
        ending=look.words[Word.ENDING],
        alive=not look.has_died,
        exit_code=history.exit_code,
        exception=_exception(look),
        state_registered=look.has(Flag.STATE_REGISTERED),
        collectives=[look.words[Word.COLLECTIVES_1 + slot] for slot in range(GROUPS_TIMED)],
        resumed_step=look.words[Word.RESUMED_STEP],
        in_loop=look.has(Flag.LOOP_WRAPPED),
        resume_failures=look.words[Word.RESUME_FAILURES],
        is_gloo_alone=uses_gloo_alone(look.words),
        model_flops=_amount(look.words[Word.MODEL_FLOPS]),
        hardware_flops=_amount(look.words[Word.HARDWARE_FLOPS]),
        peak_flops=_amount(look.words[Word.PEAK_FLOPS]),
        memory_allocated=look.words[Word.MEMORY_ALLOCATED],
        memory_reserved=look.words[Word.MEMORY_RESERVED],
        memory_peak=look.words[Word.MEMORY_PEAK],
        memory_total=look.words[Word.MEMORY_TOTAL],
        memory_retries=look.words[Word.MEMORY_RETRIES],
        window_s=round(history.windows.longest_s, 3),
    )


def _told_stop_s(history: RankHistory) -> float | None:
    ago_s = history.stopped_ago_s
    return round(ago_s, 1) if ago_s < TELLS_OF_A_STOP_S else None


def _amount(bits: int) -> float:
    """The float64 of a word; 0 for what is no amount, which JSON couldn't say either."""
    value = bits_float(bits)
    return value if is_finite(value) and value > 0 else 0.0


def _exception(look: RankLook) -> str:
    """Type and text of what ended it, in one line as torch's error file has it; else empty.

    Words without that ending are those of a thread, which ends no process.
    """
    if look.last_words is None or look.words[Word.ENDING] != Ending.EXCEPTION:
        return ""
    told = f"{look.last_words.get('type', '')}: {look.last_words.get('message', '')}"
    return " ".join(told.split())
