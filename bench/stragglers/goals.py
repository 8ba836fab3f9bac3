"""What the simulated detection has to reach, and what samples come to. Pure.

Tuned on the scenarios of `drawn.TUNING` only; those of `drawn.HELD_OUT`, which are reported, share
with them no seed, no layout in which somebody is slow, and none of their tails, slowdowns (beyond
the 10 % of the goal itself) or rates of hiccups.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.benchmark import Sample
from bench.detection.spread import percentile
from bench.figures import Figure, at_least, at_most, exactly, middle
from bench.stragglers.names import AGGREGATE, DETECTION, HEALTHY, SMALL

STEPS = 10
"""Within which a slow rank is to be found, where the statistics allow."""
RECALL = 0.98
PRECISION = 0.99
HEALTHY_STEPS = 100_000
CORE_PERCENT = 5.0


def detection(samples: Sequence[Sample]) -> list[Figure]:
    """Who was found, how soon, and who was blamed wrongly."""
    return [*_found(samples), *_small(samples), *_healthy(samples)]


def _found(samples: Sequence[Sample]) -> list[Figure]:
    of_row = [s for s in samples if s["row"] == DETECTION and "slow" in s]
    slow = [{**one, "memory": s["memory"], "role": s["role"]} for s in of_row for one in s["slow"]]
    allowed = [one for one in slow if needed(one) <= STEPS]
    plain = [one for one in slow if one["needed"] <= STEPS]
    told = sum(one["found_after"] is not None for one in slow)
    wrong = sum(len(s["false"]) for s in of_row)
    after = [float(one["found_after"]) for one in plain if one["found_after"] is not None]
    off = [abs(one["told"] - one["slowdown"]) for one in slow if one["told"] is not None]
    return [
        at_least(f"simulated, slow ranks found in <= {STEPS} steps", "share", _soon(plain), RECALL),
        at_least(
            "simulated, of ranks told slow those that were", "share", _part(told, wrong), PRECISION
        ),
        middle("simulated, slow ranks that the statistics allow", "ranks", [float(len(plain))]),
        middle("simulated, steps until a slow rank is found", "steps", after),
        middle("the same, p98", "steps", _one(percentile(after, 0.98))),
        middle(
            "the same, where likeness of steps and noise of peers allow it too",
            "share",
            _one(_soon(allowed)),
        ),
        middle("slowdown that was told: off by", "of own time", off),
    ]


def needed(one: Sample) -> float:
    """Steps that the statistics really need: beyond n >= (6.9 sigma / d)^2, by which the goal goes.

    Sigma is that of a mean times the root of n, which is the larger the more neighbouring steps
    are alike; and of a comparison, whose other side is a mean of the other ranks of the role.
    """
    alike = (1.0 + one["memory"]) / (1.0 - one["memory"])
    return float(one["needed"] * alike * (1.0 + 1.0 / (one["role"] - 1)))


def _small(samples: Sequence[Sample]) -> list[Figure]:
    of_row = [s for s in samples if s["row"] == SMALL and "slow" in s]
    slow = [{**one, "memory": s["memory"], "role": s["role"]} for s in of_row for one in s["slow"]]
    allowed = [one for one in slow if needed(one) <= STEPS]
    told = sum(one["found_after"] is not None for one in slow)
    wrong = sum(len(s["false"]) for s in of_row)
    return [
        middle("roles of two and three ranks: found in <= 10 steps", "share", _one(_soon(allowed))),
        middle("the same: of ranks told slow those that were", "share", _one(_part(told, wrong))),
    ]


def _healthy(samples: Sequence[Sample]) -> list[Figure]:
    of_row = [s for s in samples if s["row"] == HEALTHY and "false" in s]
    full = bool(of_row) and all(s["mode"] == "full" for s in of_row)
    steps = sum(s["steps"] for s in of_row)
    false = float(sum(len(s["false"]) for s in of_row))
    return [
        at_least("simulated healthy steps", "steps", float(steps), HEALTHY_STEPS)
        if full
        else middle("simulated healthy steps", "steps", [float(steps)] if of_row else []),
        exactly("ranks blamed in them", "ranks", false if of_row else None, 0),
    ]


def aggregate(samples: Sequence[Sample]) -> list[Figure]:
    """What the leader pays."""
    of_row = [s for s in samples if s["row"] == AGGREGATE and "core_percent" in s]
    percent = [float(s["core_percent"]) for s in of_row]
    return [
        at_most(
            "4,096 ranks, a record a second each: the leader's processor",
            "% of a core",
            max(percent, default=None),
            CORE_PERCENT,
            percent,
        ),
        middle("the same: memory", "MiB", [float(s["mib"]) for s in of_row]),
    ]


def _soon(slow: Sequence[Sample]) -> float | None:
    if not slow:
        return None
    soon = sum(one["found_after"] is not None and one["found_after"] <= STEPS for one in slow)
    return float(soon / len(slow))


def _part(right: int, wrong: int) -> float | None:
    return right / (right + wrong) if right + wrong else None


def _one(value: float | None) -> list[float]:
    return [] if value is None else [value]
