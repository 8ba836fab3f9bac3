"""What a write behind the loop does to the steps beside it."""

from __future__ import annotations

from collections.abc import Sequence

from bench.benchmark import Sample
from bench.checkpoint.training import Training, through

RANKS = 2
MEGABYTES = 320
EVERY_STEPS = 900
"""Some 40 s: a write that gives way lasts half a minute where all cores compute."""
PERIODIC = (
    "--set=snapshot.every_steps=1000000000",
    f"--set=checkpoint.every_steps={EVERY_STEPS}",
    "--set=checkpoint.keep=1000",
)
"""Nothing but what is measured is in flight: no snapshot but for a checkpoint."""
WINDOW_LIMIT_S = 150.0


def measure(kind: str, contestants: Sequence[str], rounds: int) -> list[Sample]:
    """One training of this kind of step; a sample per write."""
    with Training() as training:
        arguments = (MEGABYTES, kind, rounds, EVERY_STEPS, ";".join(contestants))
        training.start("a", "in_flight.py", *arguments, options=PERIODIC, ranks=RANKS)
        limit_s = WINDOW_LIMIT_S * rounds * len(contestants)
        lines = training.wait_for(through, limit_s, "the training's end")
    return [{**line, "ranks": RANKS} for line in lines if "busy_s" in line]
