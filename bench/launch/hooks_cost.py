"""What the hooks themselves take per step, in a loop that does nothing else; see bench.hot_path."""

from __future__ import annotations

import json
import sys

from bench import hot_path
from bench.benchmark import Sample
from bench.launch.child import run_child
from bench.launch.contestants import HOLDFAST

LIMIT_S = 120.0
ROUNDS = 3


def measure() -> list[Sample]:
    """Each round in a process of its own, one after the other; system calls are counted once."""
    program = "import json; from bench import hot_path; print(json.dumps(hot_path.measure()))"
    command = [sys.executable, "-c", program]
    samples = [
        {"contestant": HOLDFAST.name, **json.loads(run_child(command, LIMIT_S))}
        for _ in range(ROUNDS)
    ]
    calls = hot_path.count_system_calls()
    if calls is not None:  # without strace the figure is not run
        samples[0]["system_calls_per_step"] = calls / hot_path.TRACED_STEPS
    return samples
