"""How soon a state is back after a rank's death: from the snapshot, and with DCP from disk."""

from __future__ import annotations

from bench.benchmark import Sample
from bench.checkpoint.training import TIRELESS, Training

RANKS = 2
MEGABYTES = 320
OPTIONS = ("--set=snapshot.every_steps=1", *TIRELESS)
LIMIT_S = 60.0


def measure(kills: int) -> list[Sample]:
    """One training whose rank 1 dies again and again; a sample per load and rank."""
    with Training() as training:
        training.start("a", "load.py", MEGABYTES, kills, options=OPTIONS, ranks=RANKS)
        lines = training.wait_for(
            lambda seen: sum("done" in line for line in seen) == RANKS,
            LIMIT_S * (kills + 1),
            f"{kills} deaths and as many loads",
        )
    return [{**line, "ranks": RANKS} for line in lines if "load_s" in line]
