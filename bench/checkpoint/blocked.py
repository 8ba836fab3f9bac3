"""How long each way to save keeps the loop."""

from __future__ import annotations

from collections.abc import Sequence

from bench.benchmark import Sample
from bench.checkpoint.training import Training, through

RANKS = 2
MEGABYTES = 320
EVERY_STEP = ("--set=snapshot.every_steps=1",)
START_LIMIT_S = 180.0
ROUND_LIMIT_S = 60.0


def measure(contestants: Sequence[str], rounds: int) -> list[Sample]:
    """One training in which all take turns; a sample per rank and save."""
    with Training() as training:
        arguments = (MEGABYTES, rounds, ";".join(contestants))
        training.start("a", "blocked.py", *arguments, options=EVERY_STEP, ranks=RANKS)
        limit_s = START_LIMIT_S + rounds * ROUND_LIMIT_S
        lines = training.wait_for(through, limit_s, "all turns")
    facts = next(line for line in lines if "state_bytes" in line)
    found = [line for line in lines if "blocked_s" in line or "without_slots_s" in line]
    return [{**line, "state_bytes": facts["state_bytes"], "ranks": RANKS} for line in found]
