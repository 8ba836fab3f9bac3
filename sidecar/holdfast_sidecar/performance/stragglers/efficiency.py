"""How well the machine is used, over the newest stretch of steps: what is known of it, and why the
rest isn't.

Utilisation is what the ranks' steps need (or do) of floating-point operations, by what their
devices could do in that time: sums over the ranks of which both are known. The bubble is told by
`bubble`.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from holdfast_sidecar.performance.stragglers.frame import StepFrame
from holdfast_sidecar.performance.stragglers.placement import RankPlace
from holdfast_sidecar.performance.stragglers.step_model import bubble_share
from holdfast_sidecar.performance.stragglers.workload import (
    BESIDE,
    LOST,
    STRETCH_PARTS,
    TOTAL,
    Stretch,
    StretchMeans,
)
from holdfast_sidecar.records.reports import RankReport
from holdfast_sidecar.records.steps import Efficiency, StepLine

USUAL_FRAMES = 32
"""By the median of so many, half a minute and more of a large job's, it is told how throughput
developed: of fewer, noise makes a figure like 120 %."""

WARM_UP_FRAMES = 8
"""Left out of what the attempt began with: caches fill, allocators grow, clocks settle."""

NO_STEPS = "everything: no rank has told of ordinary steps yet"
NO_FLOPS = (
    "utilisation: what a step computes is not known; holdfast.attach(flops_per_token=...) says it,"
    " or HOLDFAST_FLOPS (operations of a step of one rank, or `count`)"
)
NO_PEAK = (
    "utilisation: what the devices could do at best is not known; HOLDFAST_PEAK_FLOPS says it,"
    " operations a second of one device"
)
NO_TOKENS = "tokens: the script reports none, as job.report(tokens=...) does"
MISSING = "tokens: not all ranks told of the newest steps"
NO_WAITS = "communication: what backward passes wait for is not told from their work"
NO_LOADER = "data: no batch was seen to come from a DataLoader, nor asked of a loop of Holdfast's"
TOO_FEW = "pace: the attempt has only begun"


@dataclass(frozen=True)
class _Seen:
    """One frame."""

    step_s: float
    tokens: int | None
    work: int
    """Tokens, or elements of batches: they compare with themselves alone. 0: not known."""
    sees_waits: bool
    fetches: bool
    """Batches were seen to be fetched."""
    bubble: float | None


@dataclass
class EfficiencyWatch:
    """Follows the frames of one attempt, oldest first."""

    _newest: deque[_Seen] = field(default_factory=lambda: deque(maxlen=USUAL_FRAMES))
    _first: list[_Seen] = field(default_factory=list)
    _stretch: Stretch = field(default_factory=Stretch)
    _frames: int = 0
    _whys: tuple[str, ...] = ()

    def begin(self) -> None:
        """Another attempt: nothing of the one before counts."""
        self._newest.clear()
        self._first.clear()
        self._stretch, self._frames, self._whys = Stretch(), 0, ()

    def hear(self, lines: Iterable[StepLine]) -> None:
        """All that ranks tell, as steps in which something was saved or evaluated may be in no
        frame."""
        self._stretch.hear(lines)

    def follow(self, frame: StepFrame, places: Mapping[int, RankPlace], ranks: int) -> None:
        """One more frame, of a job of so many ranks."""
        lines = [line for line in frame.lines.values() if line.total > 0]
        if not lines:
            return
        seen, self._whys = _see(lines, places, ranks)
        self._stretch.take(frame)
        self._newest.append(seen)
        self._frames += 1
        if self._frames > WARM_UP_FRAMES and len(self._first) < USUAL_FRAMES:
            self._first.append(seen)

    def tell(self, reports: Mapping[int, RankReport]) -> Efficiency:
        """The efficiency as of the newest frame."""
        means = self._stretch.means()
        return Efficiency(unknown=[NO_STEPS]) if means is None else self._tell(means, reports)

    def _tell(self, means: StretchMeans, reports: Mapping[int, RankReport]) -> Efficiency:
        newest, middle = self._newest, means.middle
        total_us = middle[TOTAL]
        step_s = total_us / 1e6
        mfu, hfu, why_not = _utilisation(reports, step_s)
        pace = _pace(self._first, newest)
        tokens = _mean(seen.tokens for seen in newest)
        sees_waits = 2 * sum(seen.sees_waits for seen in newest) > len(newest)
        fetches = any(seen.fetches for seen in newest)
        most = [name for name in TOLD if name in means.most and means.most[name][1] > 0]
        told = Efficiency(
            mfu=mfu,
            hfu=hfu,
            tokens_per_s=None if tokens is None else tokens / step_s,
            communication_share=middle["communicating"] / total_us if sees_waits else None,
            data_share=middle["data"] / total_us if fetches else None,
            bubble_share=_mean(seen.bubble for seen in newest),
            pace=pace,
            step_s=step_s,
            usual_step_s=statistics.median(seen.step_s for seen in newest),
            from_step=means.first_step,
            parts_us={name: round(middle[name], 1) for name in TOLD if middle[name] > 0},
            most_us={name: round(means.most[name][1], 1) for name in most},
            most_rank={name: means.most[name][0] for name in most},
        )
        whys = (why_not, *self._whys, TOO_FEW if pace is None else "")
        return replace(told, unknown=[why for why in whys if why])


TOLD = (*STRETCH_PARTS, *BESIDE, LOST)


def _see(
    lines: Sequence[StepLine], places: Mapping[int, RankPlace], ranks: int
) -> tuple[_Seen, tuple[str, ...]]:
    """One frame, and what is not known of it."""
    tokens, why_no_tokens = _tokens(lines, ranks)
    bubble, why_no_bubble = bubble_share(lines, places)
    # Alone a rank waits for nobody. A few whose newest backward pass could not be looked into
    # don't move the median of many.
    sees_waits = 2 * sum(line.waits_seen for line in lines) > len(lines) or ranks < 2
    fetches = any(line.data for line in lines)
    seen = _Seen(
        step_s=statistics.median(line.total for line in lines) / 1e6,
        tokens=tokens,
        work=sum(line.tokens for line in lines) if len(lines) >= ranks else 0,
        sees_waits=sees_waits,
        fetches=fetches,
        bubble=bubble,
    )
    why_no_data = "" if fetches else NO_LOADER
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
    done = [report.hardware_flops for report in known]
    hardware = sum(done) / could_do if all(done) else None
    return model, hardware, _left_out(len(reports) - len(known), len(reports))


def _left_out(count: int, ranks: int) -> str:
    if not count:
        return ""
    return f"utilisation: {count} of {ranks} ranks are left out, of which it is not known"


def _pace(first: Sequence[_Seen], newest: Sequence[_Seen]) -> float | None:
    """Throughput now against the beginning: of work where both are known, else of steps."""
    if len(first) < USUAL_FRAMES:
        return None
    if all(seen.work for seen in (*first, *newest)):
        before, now = (
            statistics.median(seen.work / seen.step_s for seen in some) for some in (first, newest)
        )
        return now / before
    return statistics.median(seen.step_s for seen in first) / statistics.median(
        seen.step_s for seen in newest
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
