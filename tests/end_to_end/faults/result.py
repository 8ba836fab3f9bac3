"""What must not depend on faults, read from what the ranks said; and the same without Holdfast."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from functools import cache

from tests.end_to_end.faults.job import TRAINING, Job, new_job


@dataclass(frozen=True)
class Result:
    """Weights, and each rank's samples by step."""

    weights: set[str]
    samples: dict[int, dict[int, list[int]]]
    was_steady: bool
    """No step was ever given other samples the second time."""


def read_result(job: Job, world: int) -> Result:
    samples: dict[int, dict[int, list[int]]] = {rank: {} for rank in range(world)}
    was_steady = True
    logs = job.out.glob("samples-*")
    for log in sorted(logs, key=lambda path: int(path.name.split("-")[1])):
        seen = samples[int(log.name.split("-")[2])]
        for line in log.read_text().splitlines():
            step, indices = json.loads(line)
            was_steady &= seen.setdefault(step, indices) == indices
    weights = {(job.out / f"weights-{rank}").read_text() for rank in range(world)}
    return Result(weights, samples, was_steady)


@cache
def run_undisturbed(world: int, steps: int) -> Result:
    """The same training under torch's own launcher, without us; run once."""
    job = new_job(None)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={world}", str(TRAINING), "resumable", str(steps), "0"]
    try:
        subprocess.run(command, env=job.environment, check=True, capture_output=True, timeout=90)
        return read_result(job, world)
    finally:
        job.close()


def assert_same(job: Job, undisturbed: Result) -> None:
    """Every sample once and in order on every rank, and one set of weights, to the last bit."""
    found = read_result(job, len(undisturbed.samples))
    assert found.was_steady, job.story()
    assert found.samples == undisturbed.samples
    assert found.weights == undisturbed.weights
    assert len(found.weights) == 1
