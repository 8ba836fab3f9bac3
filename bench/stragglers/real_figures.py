"""What the samples of real jobs come to. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bench.benchmark import Sample
from bench.figures import Figure, at_least, exactly, middle
from bench.results import FULL
from bench.stragglers.real_names import REAL, REAL_HEALTHY, REAL_LINK

WITHIN_STEPS = 10
LEAST_HEALTHY_STEPS = 10_000
LEAST_RECALL = LEAST_PRECISION = 0.98
LEAST_RIGHT_CAUSES = 0.95
STRONG = 0.3
"""A rank so much slower has to be found; below it is reported as it comes."""


def figures(samples: Sequence[Sample]) -> list[Figure]:
    """Found in time, nobody else, with the right cause; and no alarm of the healthy."""
    told = [one for one in samples if "not_run" not in one]
    real = [one for one in told if one["row"] in (REAL, REAL_LINK)]
    episodes = [episode for one in real for episode in one["episodes"]]
    alarms = sum(len(one["false_alarms"]) for one in real)
    strong = [one for one in episodes if one["slowdown"] >= STRONG]
    weak = [one for one in episodes if one["slowdown"] < STRONG]
    found = [one for one in episodes if one["found_after"] is not None]
    found_strong = [one for one in strong if one["found_after"] is not None]
    right = [one for one in found_strong if one["told_cause"] == one["cause"]]
    return [
        at_least(
            f"real, slower by 30 % and more: found within {WITHIN_STEPS} steps",
            "share",
            _share(len(_in_time(strong)), len(strong)),
            LEAST_RECALL,
        ),
        *_by_cause(strong),
        middle(
            "real, 30 % and more: steps until found",
            "steps",
            [float(one["found_after"]) for one in found_strong],
        ),
        Figure(
            f"real, slower by less: found within {WITHIN_STEPS} steps",
            _share(len(_in_time(weak)), len(weak)),
            "share",
        ),
        at_least(
            "real, precision",
            "share",
            _share(len(found), len(found) + alarms) if episodes else None,
            LEAST_PRECISION,
        ),
        at_least(
            "real, cause right (unknown is wrong)",
            "share",
            _share(len(right), len(found_strong)),
            LEAST_RIGHT_CAUSES,
        ),
        *_confusions(found_strong),
        *_healthy([one for one in told if one["row"] == REAL_HEALTHY]),
    ]


def _by_cause(strong: Sequence[Sample]) -> list[Figure]:
    causes = sorted({one["cause"] for one in strong})
    told = []
    for cause in causes:
        of_it = [one for one in strong if one["cause"] == cause]
        share = _share(len(_in_time(of_it)), len(of_it))
        told.append(Figure(f"real, {cause}: found of {len(of_it)}", share, "share"))
    return told


def _confusions(found: Sequence[Sample]) -> list[Figure]:
    """The matrix's entries off its diagonal."""
    pairs = Counter((one["cause"], one["told_cause"]) for one in found)
    return [
        Figure(f"real, {planted} told as {named}", float(count), "runs")
        for (planted, named), count in sorted(pairs.items())
        if planted != named
    ]


def _healthy(samples: Sequence[Sample]) -> list[Figure]:
    steps = sum(one["steps"] for one in samples)
    alarms = sum(len(one["false_alarms"]) for one in samples)
    told = float(alarms) if samples else None
    return [
        exactly("real, alarms in healthy steps", "alarms", told, 0.0),
        at_least("real, healthy steps", "steps", float(steps), LEAST_HEALTHY_STEPS)
        if samples and all(one.get("mode") == FULL for one in samples)
        else middle("real, healthy steps", "steps", [float(steps)] if samples else []),
    ]


def _in_time(episodes: Sequence[Sample]) -> list[Sample]:
    return [
        one
        for one in episodes
        if one["found_after"] is not None and one["found_after"] <= WITHIN_STEPS
    ]


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
