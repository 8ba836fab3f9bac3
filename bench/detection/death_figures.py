"""The figures of a rank's death: when its sidecar knows, and when all of the job do. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bench.benchmark import Sample
from bench.detection.names import DEATH, EVERYWHERE, HOLDFAST, NVRX, TORCHRUN
from bench.detection.spread import percentile
from bench.figures import Figure, at_least, at_most, exactly, middle, ratio

MILLISECONDS = 1e3


def death_figures(samples: Sequence[Sample]) -> list[Figure]:
    """From SIGKILL until the rank's own sidecar has judged it dead and told its coordinator."""
    found = [s for s in samples if (s["row"], s.get("contestant")) == (DEATH, HOLDFAST)]
    known = [s["known_s"] * MILLISECONDS for s in found if "known_s" in s]
    pidfd = [s["pidfd_s"] * MILLISECONDS for s in found if "pidfd_s" in s]
    unknown = sum("known_s" not in s for s in found) if found else None
    name = "rank SIGKILLed: its sidecar knows"
    return [
        at_most(f"{name}, p50", "ms", percentile(known, 0.5), 2.0, known),
        at_most(f"{name}, p99", "ms", percentile(known, 0.99), 10.0),
        at_least("rank SIGKILLed: pidfd / sidecar", "ratio", ratio(pidfd, known), 40.0),
        exactly("rank SIGKILLed: not noticed, or not as a crash", "times", unknown, 0),
        middle("rank SIGKILLed: pidfd", "ms", pidfd),
        *(_told_by(samples, peer) for peer in (TORCHRUN, NVRX)),
    ]


def _told_by(samples: Sequence[Sample], peer: str) -> Figure:
    told = [
        s["told_s"] * MILLISECONDS
        for s in samples
        if (s["row"], s.get("contestant")) == (DEATH, peer) and "told_s" in s
    ]
    return middle(f"rank SIGKILLed: {peer}'s launcher says so", "ms", told)


def everywhere_figures(samples: Sequence[Sample]) -> list[Figure]:
    """From SIGKILL until the last sidecar of the job has heard who died and that it is over."""
    found = [s for s in samples if s["row"] == EVERYWHERE and "is_right" in s]
    last = [s["last_s"] * MILLISECONDS for s in found if "last_s" in s]
    wrong = sum(not s["is_right"] for s in found) if found else None
    name = "rank SIGKILLed: all sidecars know"
    return [
        at_most(f"{name}, p99", "ms", percentile(last, 0.99), 50.0),
        middle(f"{name}, p50", "ms", last),
        exactly(f"{name}: of somebody else", "times", wrong, 0),
    ]
