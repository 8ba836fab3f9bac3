"""Losses and gradients that went wrong: NaN or infinite, or far above what is usual.

Told, and enough to hold a checkpoint's `good` back. Whether the job goes back is for the leader,
who hears all ranks.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.page import Word
from holdfast_sidecar.config.settings import NumbersSettings
from holdfast_sidecar.observation import RankHistory, Ranks
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.findings import Finding, Kind

SCALER = "loss scaler"
"""What a finding is about that has nothing to do with any one step."""

TOLD_FOR_S = 60.0
"""A NaN that a script passed over is told for as long: whoever looks each minute sees it."""

SCALER_GIVES_UP = 24
"""A loss scaler halves its factor at every step that it passes over: from its first, 65536, to less
than a two-hundredth. Gradients that overflow even then don't because of the factor."""


def find_bad_numbers(ranks: Ranks, settings: NumbersSettings, moment: Moment) -> Iterator[Finding]:
    """What there is to tell about each local rank's numbers."""
    for history in ranks.local.values():
        if text := _nonfinite(history, moment):
            yield _finding(Kind.NONFINITE, history, moment, 0.99, text)
        if text := _spike(history, settings):
            yield _finding(Kind.SPIKE, history, moment, 0.8, text)
        if (skips := history.look.words[Word.SCALER_SKIPS]) >= SCALER_GIVES_UP:
            text = f"the loss scaler has passed over {skips} steps in a row"
            yield _finding(Kind.NONFINITE, history, moment, 0.9, text, SCALER)


def _nonfinite(history: RankHistory, moment: Moment) -> str:
    words = history.look.words
    is_ill_now = history.onset_step >= 0
    if not is_ill_now and moment.now_s - history.ill_seen_s > TOLD_FOR_S:
        return ""
    told = [
        f"{count} {what}"
        for count, what in (
            (words[Word.NONFINITE], "losses"),
            (words[Word.NONFINITE_GRADIENTS], "gradient norms"),
        )
        if count
    ]
    since = f", without a break since step {history.onset_step}" if is_ill_now else ""
    return f"{' and '.join(told)} so far were NaN or Inf{since}; newest step {history.look.step}"


def _spike(history: RankHistory, settings: NumbersSettings) -> str:
    spike = history.numbers.spike
    if spike is None:
        return ""
    what = "loss" if spike is history.numbers.loss else "gradient norm"
    return (
        f"the {what} has been more than {settings.spike_z:g} deviations above usual for "
        f"{len(spike.beyond)} steps, since step {spike.onset_step}"
    )


def _finding(
    kind: Kind, history: RankHistory, moment: Moment, confidence: float, text: str, what: str = ""
) -> Finding:
    return Finding(
        kind=kind,
        node=moment.node,
        since_unix_s=moment.now_unix_s,
        confidence=confidence,
        ranks=[history.look.rank],
        evidence=[text],
        what=what,
    )
