"""How far apart checkpoints should lie: Young's and Daly's optimum, within bounds.

delta is what a checkpoint keeps the loop (seconds), M the mean time between failures of the whole
job per wall clock. Too often costs delta each time, too seldom half an interval at each failure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from holdfast_sidecar.config.settings import CheckpointSettings

WRITE_FACTOR = 1.2
"""A write must end before the next begins; storage that others use is not always equally fast."""


@dataclass(frozen=True)
class Cost:
    """What one checkpoint was measured to take, seconds."""

    blocked_s: float
    """The loop stood still."""
    write_s: float
    """From there until all was written and hashed."""


@dataclass(frozen=True)
class Interval:
    """How often to save, and why so. Times in seconds."""

    target_s: float
    young_s: float | None
    """None: nothing was measured yet."""
    daly_s: float | None
    bound: str
    """What decided: `optimum`, `least_every_s`, `most_every_s`, `write` (it takes so long),
    `every_s` (the user) or `unmeasured`."""


def young_s(blocked_s: float, mtbf_s: float) -> float:
    """Young's optimum, sqrt(2 delta M)."""
    return math.sqrt(2 * blocked_s * mtbf_s)


def daly_s(blocked_s: float, mtbf_s: float) -> float:
    """Daly's optimum of higher order; M itself where a checkpoint costs as much as two failures."""
    if blocked_s >= 2 * mtbf_s:
        return mtbf_s
    part = blocked_s / (2 * mtbf_s)
    return young_s(blocked_s, mtbf_s) * (1 + math.sqrt(part) / 3 + part / 9) - blocked_s


def choose(settings: CheckpointSettings, cost: Cost | None, mtbf_s: float) -> Interval:
    """The interval by time. A user's own one stands as it is."""
    young = None if cost is None else young_s(cost.blocked_s, mtbf_s)
    daly = None if cost is None else daly_s(cost.blocked_s, mtbf_s)
    if settings.every_s > 0:
        return Interval(settings.every_s, young, daly, "every_s")
    if cost is None or daly is None:
        # The first one soon: it is what the others are reckoned from.
        return Interval(settings.least_every_s, young, daly, "unmeasured")
    target_s, bound = daly, "optimum"
    if target_s > settings.most_every_s:
        target_s, bound = settings.most_every_s, "most_every_s"
    if target_s < settings.least_every_s:
        target_s, bound = settings.least_every_s, "least_every_s"
    if target_s < WRITE_FACTOR * cost.write_s:
        target_s, bound = WRITE_FACTOR * cost.write_s, "write"
    return Interval(target_s, young, daly, bound)


def loss_per_failure_s(interval_s: float, cost: Cost) -> float:
    """Work lost on average when only checkpoints are left: half an interval, and what was still
    being written."""
    return interval_s / 2 + cost.write_s


def waste(interval_s: float, blocked_s: float, lost_s: float, mtbf_s: float) -> float:
    """Share of wall-clock time that saving and doing again take together."""
    return min(1.0, blocked_s / interval_s + lost_s / mtbf_s)
