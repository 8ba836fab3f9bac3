"""What a write behind the loop does to the steps beside it."""

from __future__ import annotations

import time
from collections.abc import Sequence

from bench.benchmark import NotRun, Sample
from bench.checkpoint.training import LOOK_S, Training, through

RANKS = 2
MEGABYTES = 320
ONLY_ON_REQUEST = ("--set=snapshot.every_steps=1000000000", "--set=checkpoint.every_s=86400")
"""So that nothing but what is measured is in flight."""
WINDOW_LIMIT_S = 150.0


def measure(kind: str, contestants: Sequence[str], rounds: int) -> list[Sample]:
    """One training of this kind of step; a sample per write."""
    with Training() as training:
        arguments = (MEGABYTES, kind, rounds, ";".join(contestants))
        training.start("a", "in_flight.py", *arguments, options=ONLY_ON_REQUEST, ranks=RANKS)
        end_s = time.monotonic() + WINDOW_LIMIT_S * rounds * len(contestants)
        asked = 0
        while not through(lines := training.lines()):
            wanted = sum("wants_checkpoint" in line for line in lines)
            if wanted > asked:
                training.request_checkpoint()
                asked += 1
            is_over = all(one.process.poll() is not None for one in training.launched.values())
            if time.monotonic() > end_s or is_over:
                training.tell_last_lines()
                raise NotRun("the training did not come to its end")
            time.sleep(LOOK_S)
    return [{**line, "ranks": RANKS} for line in lines if "busy_s" in line]
