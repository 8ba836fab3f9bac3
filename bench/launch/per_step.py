"""What a launcher costs each step: the same job, launched bare and under each contestant in turn.

A launch differs from the next by several per cent whatever it runs under; `hooks_paired` resolves
what this cannot.
"""

from __future__ import annotations

from pathlib import Path

from bench.benchmark import Sample
from bench.launch.contestants import BARE, HOLDFAST, NVRX, TORCHRUN, Contestant, Scenario
from bench.launch.job import Job
from bench.launch.names import ADAMW
from bench.launch.steps import steady, step_seconds

ROW = "per-step"
CONTESTANTS = (BARE, TORCHRUN, NVRX, HOLDFAST)
"""torchrun with a store of its own differs from torchrun at restarts only."""

STEPS = 100
SKIPPED = 30
"""The first ones share the machine with what is still starting up."""
LIMIT_S = 120.0


def measure(contestant: Contestant, number: int) -> Sample:
    """Median step time of a short undisturbed run."""
    scenario = Scenario(run="", directory=Path(), optimizer=ADAMW)
    with Job(contestant, scenario) as job:
        for node in ("a", "b"):
            job.start(node)
        events = job.wait_until(lambda seen: steady(seen, 2, STEPS), LIMIT_S, must=True)
    step_s = step_seconds(events, skip=SKIPPED)
    return {"contestant": contestant.name, "job": ADAMW, "round": number, "step_s": step_s}
