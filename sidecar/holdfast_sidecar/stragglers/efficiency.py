"""How well the machine is used, over the newest steps: what is known of it, and why the rest isn't.

Utilisation is what the ranks' steps need (or do) of floating-point operations, by what their
devices could do in that time: sums over the ranks of which both are known. The bubble is told by
`bubble`.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from holdfast_sidecar.records.rank import RankReport
from holdfast_sidecar.records.slowness import Efficiency
from holdfast_sidecar.records.steps import StepLine
from holdfast_sidecar.stragglers.bubble import bubble_share
from holdfast_sidecar.stragglers.frame import Frame
from holdfast_sidecar.stragglers.place import Place

NEWEST_FRAMES = 8
"""By the median of so many: one odd frame changes nothing, and a change shows within ten."""

FIRST_FRAMES = 8
"""What the attempt began with, likewise. Its very first steps are in no frame."""

NO_STEPS = "everything: no rank has told of ordinary steps yet"
NO_FLOPS = "utilisation: no rank has counted the operations of one of its steps"
NO_PEAK = (
    "utilisation: what the devices could do at best is not known; HOLDFAST_PEAK_FLOPS says it,"
    " operations a second of one device"
)
NO_TOKENS = "tokens: the script reports none, as job.report(tokens=...) does"
MISSING = "tokens: not all ranks told of the newest steps"
NO_WAITS = "communication: what backward passes wait for is not told from their work"
NO_LOADER = "data: no batch was seen to come from a DataLoader, nor asked of a loop of Holdfast's"
TOO_FEW = "scaling: the attempt has only begun"


@dataclass(frozen=True)
class _Seen:
    """One frame."""

    step_s: float
    tokens_per_s: float | None
    work_per_s: float | None
    """Tokens, or elements of batches: they compare with themselves alone."""
    communication: float | None
    data: float | None
    """None: no batch was seen to be fetched."""
    bubble: float | None


@dataclass
class EfficiencyWatch:
    """Follows the frames of one attempt, oldest first; begins anew when steps are counted from
    lower down."""

    _step: int = -1
    _newest: deque[_Seen] = field(default_factory=lambda: deque(maxlen=NEWEST_FRAMES))
    _first: list[_Seen] = field(default_factory=list)
    _whys: tuple[str, ...] = ()

    def follow(
        self, frame: Frame, places: Mapping[int, Place], reports: Mapping[int, RankReport]
    ) -> Efficiency:
        """The efficiency as of this frame."""
        if frame.step <= self._step:
            self._newest.clear()
            self._first.clear()
        self._step = frame.step
        lines = [line for line in frame.lines.values() if line.total > 0]
        if lines:
            seen, self._whys = _see(lines, places, max(len(places), len(reports)))
            self._newest.append(seen)
            if len(self._first) < FIRST_FRAMES:
                self._first.append(seen)
        if not self._newest:
            return Efficiency(unknown=[NO_STEPS])
        return self._tell(reports)

    def _tell(self, reports: Mapping[int, RankReport]) -> Efficiency:
        newest = self._newest
        step_s = statistics.median(seen.step_s for seen in newest)
        mfu, hfu, why_not = _utilisation(reports, step_s)
        scaling = _scaling(self._first, newest)
        told = Efficiency(
            mfu=mfu,
            hfu=hfu,
            tokens_per_s=_median(seen.tokens_per_s for seen in newest),
            communication_share=_median(seen.communication for seen in newest),
            data_share=_median(seen.data for seen in newest),
            bubble_share=_median(seen.bubble for seen in newest),
            scaling=scaling,
            step_s=step_s,
        )
        whys = (why_not, *self._whys, TOO_FEW if scaling is None else "")
        return replace(told, unknown=[why for why in whys if why])


def _see(
    lines: Sequence[StepLine], places: Mapping[int, Place], ranks: int
) -> tuple[_Seen, tuple[str, ...]]:
    """One frame, and what is not known of it."""
    step_s = statistics.median(line.total for line in lines) / 1e6
    tokens, why_no_tokens = _tokens(lines, ranks)
    bubble, why_no_bubble = bubble_share(lines, places)
    # Alone a rank waits for nobody. A few whose newest backward pass could not be looked into
    # don't move the median of many.
    sees_waits = 2 * sum(line.waits_seen for line in lines) > len(lines) or ranks < 2
    waits = statistics.median(line.communicating / line.total for line in lines)
    fetches = any(line.data for line in lines)
    waits_for_data = (
        statistics.median(line.data / line.total for line in lines) if fetches else None
    )
    work = sum(line.tokens for line in lines) if len(lines) >= ranks else 0
    seen = _Seen(
        step_s=step_s,
        tokens_per_s=None if tokens is None else tokens / step_s,
        work_per_s=work / step_s if work else None,
        communication=waits if sees_waits else None,
        data=waits_for_data,
        bubble=bubble,
    )
    why_no_data = NO_LOADER if waits_for_data is None else ""
    return seen, (why_no_tokens, "" if sees_waits else NO_WAITS, why_no_data, why_no_bubble)


def _tokens(lines: Sequence[StepLine], ranks: int) -> tuple[int | None, str]:
    """Of all ranks in a step, by the script's own word: where several work on the same part of a
    batch, one of them tells it. What is seen in a batch may be anything's elements."""
    reported = [line.tokens for line in lines if line.work_reported]
    if not any(reported):
        return None, NO_TOKENS
    if len(lines) < ranks:
        return None, MISSING
    return sum(reported), ""


def _utilisation(
    reports: Mapping[int, RankReport], step_s: float
) -> tuple[float | None, float | None, str]:
    """MFU, HFU, and why they are not known."""
    counted = [report for report in reports.values() if report.model_flops > 0]
    known = [report for report in counted if report.peak_flops > 0]
    if not counted:
        return None, None, NO_FLOPS
    if not known:
        return None, None, NO_PEAK
    could_do = step_s * sum(report.peak_flops for report in known)
    model = sum(report.model_flops for report in known) / could_do
    hardware = sum(report.hardware_flops for report in known) / could_do
    return model, hardware, _left_out(len(reports) - len(known), len(reports))


def _left_out(count: int, ranks: int) -> str:
    if not count:
        return ""
    return f"utilisation: {count} of {ranks} ranks are left out, of which it is not known"


def _scaling(first: Sequence[_Seen], newest: Sequence[_Seen]) -> float | None:
    """Throughput now against the beginning: of work where both are known, else of steps."""
    if len(first) < FIRST_FRAMES:
        return None
    before, now = (_median(seen.work_per_s for seen in some) for some in (first, newest))
    if before and now:
        return now / before
    return statistics.median(seen.step_s for seen in first) / statistics.median(
        seen.step_s for seen in newest
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
