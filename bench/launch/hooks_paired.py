"""What the hooks cost a real step: the same process steps with them on and off, in turn.

A launch differs from the next by far more than the hooks cost, so both sides of every pair are
neighbouring blocks of steps in one process, and the order within a pair alternates.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from functools import partial

from bench.benchmark import Sample, Task
from bench.interval import median_interval
from bench.launch.child import run_child
from bench.launch.contestants import HOLDFAST
from bench.launch.job import free_port
from bench.launch.names import HOOKS_PAIRED
from holdfast.contract import environment

PAIRS, QUICK_PAIRS = 2400, 400
"""One block differs from its neighbour by some 15 % on a busy machine of two cores: the median of
four hundred such pairs is known to 1.5 % only, which bounds nothing by 1 %."""
STEPS_PER_BLOCK = 5
LIMIT_S = 900.0


def tasks(quick: bool) -> list[Task]:
    """One."""
    pairs = QUICK_PAIRS if quick else PAIRS
    return [Task(HOOKS_PAIRED, HOOKS_PAIRED, partial(measure, pairs))]


def measure(pairs: int) -> list[Sample]:
    """All blocks, and what they come to."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir="/dev/shm") as pages:
        command = [sys.executable, "-m", "bench.launch.paired_step"]
        command += [str(pairs), str(STEPS_PER_BLOCK)]
        blocks = json.loads(run_child(command, LIMIT_S, rank_environment(pages)))
    return [{"contestant": HOLDFAST.name, **judge(blocks["on_ns"], blocks["off_ns"]), **blocks}]


def rank_environment(pages: str) -> dict[str, str]:
    """A rank of its own, as the launcher would start it, without a launcher."""
    rank = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "OMP_NUM_THREADS": "1"}
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ours = {
        environment.PAGE_DIR: pages,
        environment.JOB: "bench",
        environment.NODE: "a",
        environment.ATTEMPT: "0",
    }
    return {**rank, **address, **ours, environment.EVIDENCE_DIR: pages}


def judge(on_ns: Sequence[int], off_ns: Sequence[int]) -> Sample:
    """By how many per cent a block with hooks takes longer than its neighbour without."""
    percents = [100 * (on / off - 1) for on, off in zip(on_ns, off_ns, strict=True)]
    interval = median_interval(percents)
    return {
        "lower_percent": interval.lower,
        "percent": interval.middle,
        "upper_percent": interval.upper,
        "pairs": len(percents),
    }
