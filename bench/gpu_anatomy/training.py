"""Row `training`: the same program as a rank with hooks and without, by turns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.benchmark import NotRun, Sample, Task
from bench.gpu_anatomy.gpu import torch_with_gpu
from bench.gpu_anatomy.names import TRAINING
from holdfast.contract import environment
from holdfast.rank import attachment

PROGRAM = Path(__file__).with_name("program.py")
ROUNDS = 12
BLOCKS, STEPS = 10, 50
TIMEOUT_S = 300.0


def measure(device: str, rounds: int, blocks: int, steps: int) -> list[Sample]:
    """One sample per process. Who is first changes from round to round."""
    if device == "cuda":
        torch_with_gpu()
    found = []
    for number in range(rounds):
        for hooked in (True, False) if number % 2 else (False, True):
            told = run(device, hooked, blocks, steps)
            found.append({"round": number, "hooked": hooked, **told})
    return found


def run(device: str, hooked: bool, blocks: int, steps: int) -> Sample:
    """What one process says of itself."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        done = subprocess.run(
            [sys.executable, str(PROGRAM), device, str(blocks), str(steps)],
            env=_environment(Path(folder), hooked),
            stdout=subprocess.PIPE,
            text=True,
            timeout=TIMEOUT_S,
        )
    if done.returncode != 0:
        raise NotRun(f"the training ended with code {done.returncode}")
    told: Sample = json.loads(done.stdout.splitlines()[-1])
    return told


def _environment(folder: Path, hooked: bool) -> dict[str, str]:
    inherited = {key: value for key, value in os.environ.items() if "HOLDFAST" not in key}
    return {
        **inherited,
        **attachment.worker_environment(inherited),
        environment.PAGE_DIR: str(folder),
        environment.JOB: "bench",
        environment.NODE: "bench",
        environment.ATTEMPT: "0",
        environment.HOOKS: "1" if hooked else "0",
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
    }


def tasks(quick: bool) -> list[Task]:
    """One task: rounds belong together."""
    rounds = 3 if quick else ROUNDS
    return [Task(TRAINING, TRAINING, lambda: measure("cuda", rounds, BLOCKS, STEPS))]
