"""What the samples of `bench gpu-anatomy` come to. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from bench.benchmark import Sample
from bench.figures import Figure, at_least, at_most, exactly, middle
from bench.gpu_anatomy.names import EVENTS, TRAINING

MOST_SLOWER_PERCENT = 0.2
CALLS = (
    "record",
    "is the stream captured",
    "query",
    "elapsed_time",
    "memory_stats_as_nested_dict",
)


def figures(samples: Sequence[Sample]) -> list[Figure]:
    """What calls take, then what the hooks take from a transformer's steps."""
    samples = [sample for sample in samples if "not_run" not in sample]
    took = {sample["call"]: sample["took_us"] for sample in samples if sample["row"] == EVENTS}
    told = [middle(f"{call} of one event or device", "us", took.get(call, [])) for call in CALLS]
    return [*told, *_training([one for one in samples if one["row"] == TRAINING])]


def _training(samples: Sequence[Sample]) -> list[Figure]:
    hooked, bare = ([one for one in samples if one["hooked"] is which] for which in (True, False))
    slower = [
        (statistics.median(one["took_us"]) / statistics.median(other["took_us"]) - 1) * 100
        for one, other in zip(hooked, bare, strict=False)
    ]
    waits = [float(one["waits"]) for one in hooked]
    usual = max((one["waits"] for one in bare), default=0)
    added = max(waits, default=0.0) - usual if waits else None
    refused = float(sum(bool(one["refused"]) for one in hooked)) if hooked else None
    timed = float(min(one["device_lags"] for one in hooked)) if hooked else None
    return [
        middle("a step without hooks", "us", [us for one in bare for us in one["took_us"]]),
        at_most(
            "slower with hooks, median of pairs",
            "%",
            statistics.median(slower) if slower else None,
            MOST_SLOWER_PERCENT,
            slower,
        ),
        exactly("calls that wait for the GPU, added by hooks", "", added, 0),
        exactly("runs in which torch forbade a call of the hooks", "", refused, 0),
        at_least("records with the GPU's own times, fewest of a run", "", timed, 1),
    ]
