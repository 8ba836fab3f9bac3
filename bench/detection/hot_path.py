"""What the hooks take of a step on a CPU: time, system calls, and memory over a million steps.

As `bench launch` does; see bench.hot_path. Every round in a process of its own.
"""

from __future__ import annotations

import json
import sys
from functools import partial

from bench import hot_path
from bench.benchmark import NotRun, Sample, Task
from bench.detection.names import HOT_PATH
from bench.launch.child import run_child

ROUNDS = 3
LIMIT_S = 120.0
STEPS = 1_000_000
GROWTH_LIMIT_S = 300.0


def tasks(quick: bool) -> list[Task]:
    """Time in three rounds; memory once, over fewer steps when it has to be quick."""
    steps = STEPS // 10 if quick else STEPS
    return [
        *(Task(HOT_PATH, f"{HOT_PATH}/time/{number}", measure_time) for number in range(ROUNDS)),
        Task(HOT_PATH, f"{HOT_PATH}/system-calls", measure_system_calls),
        Task(HOT_PATH, f"{HOT_PATH}/memory", partial(measure_memory, steps)),
    ]


def measure_time() -> list[Sample]:
    """Microseconds per step."""
    return [_child("hot_path.measure()", LIMIT_S)]


def measure_system_calls() -> list[Sample]:
    """Calls per step, by strace."""
    calls = hot_path.count_system_calls()
    if calls is None:
        raise NotRun("there is no strace")
    return [{"system_calls_per_step": calls / hot_path.TRACED_STEPS}]


def measure_memory(steps: int) -> list[Sample]:
    """What so many steps leave behind."""
    return [_child(f"hot_path.measure_growth({steps})", GROWTH_LIMIT_S)]


def _child(call: str, limit_s: float) -> Sample:
    program = f"import json; from bench import hot_path; print(json.dumps({call}))"
    found: Sample = json.loads(run_child([sys.executable, "-c", program], limit_s))
    return found
