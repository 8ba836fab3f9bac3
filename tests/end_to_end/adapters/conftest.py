"""Runs a framework's training program under `holdfast run`, two ranks on gloo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.launcher import surroundings

HERE = Path(__file__).parent
RANKS = 2


@dataclass(frozen=True)
class Trained:
    """What a job that ran to its end left behind."""

    exit_code: int
    log: str
    said: dict[tuple[int, int], dict[str, Any]]
    """By attempt and rank."""
    manifests: list[dict[str, Any]]


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., Trained]:
    """Trains with a program of this directory, to the job's end."""

    def run(program: str, *options: str) -> Trained:
        out, checkpoints = tmp_path / "out", tmp_path / "checkpoints"
        for folder in (out, tmp_path / "shm", tmp_path / "state"):
            folder.mkdir()
        environment = surroundings(tmp_path) | {"HF_HUB_OFFLINE": "1"}
        command = [
            *(sys.executable, "-m", "holdfast_sidecar.cli.main", "run", "--standalone"),
            *("--job", f"adapters-{os.getpid()}", "--nproc-per-node", str(RANKS)),
            *("--checkpoint-dir", str(checkpoints), "--set=checkpoint.every_steps=4"),
            *("--set=sidecar.tick_s=0.1", "--set=policy.backoff_s=0.1"),
            *(*options, str(HERE / program)),
        ]
        log = tmp_path / "log"
        with log.open("w") as stream:
            done = subprocess.run(
                command, cwd=tmp_path, env=environment, stdout=stream, stderr=stream, timeout=110
            )
        said = {}
        for path in out.glob("*.json"):
            attempt, rank = path.stem.split("-")
            said[int(attempt), int(rank)] = json.loads(path.read_text())
        manifests = [
            json.loads(path.read_text()) for path in sorted(checkpoints.glob("*/manifest.json"))
        ]
        return Trained(done.returncode, log.read_text(), said, manifests)

    return run
