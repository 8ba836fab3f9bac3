"""Gradients gathered over several batches: whenever a rank is killed, the last weights are those of
the undisturbed run, though what was gathered is in no snapshot and in no checkpoint.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from tests.end_to_end.launcher import surroundings

pytestmark = [pytest.mark.torch, pytest.mark.timeout(400)]

PROGRAM = Path(__file__).parent / "gathering.py"
RANKS = 2

Told = list[tuple[int, str]]
"""Of each rank: the step it resumed from, and the digest of its last weights."""


@cache
def undisturbed(way: str, seed: int, folder: Path) -> Told:
    """The same training under torch's own launcher."""
    environment = surroundings(folder)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={RANKS}", str(PROGRAM), way, str(seed), "-1"]
    (folder / "out").mkdir(exist_ok=True)
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return read_told(folder)


def read_told(folder: Path) -> Told:
    lines = [(folder / "out" / f"end-{rank}").read_text().split() for rank in range(RANKS)]
    return [(int(step), weights) for step, weights in lines]


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., Told]:
    """A rank is killed when so many batches of a window are gathered."""

    def run(way: str, seed: int, gathered: int, *options: str) -> Told:
        for folder in ("out", "shm", "state"):
            (tmp_path / folder).mkdir()
        command = [
            *(sys.executable, "-m", "holdfast_sidecar.cli.main", "run", "--standalone"),
            *("--job", f"gathering-{os.getpid()}", "--nproc-per-node", str(RANKS)),
            *("--checkpoint-dir", str(tmp_path / "checkpoints"), *options),
            *("--set=sidecar.tick_s=0.1", "--set=policy.backoff_s=0.1"),
            *(str(PROGRAM), way, str(seed), str(gathered)),
        ]
        done = subprocess.run(
            command, env=surroundings(tmp_path), capture_output=True, text=True, timeout=220
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return read_told(tmp_path)

    return run


@pytest.mark.parametrize("seed", [1, 2])
def test_a_window_gathered_by_hand_is_gathered_again_from_its_beginning(
    seed: int, train: Callable[..., Told], tmp_path_factory: pytest.TempPathFactory
) -> None:
    told = train("hand", seed, seed + 1, "--set=snapshot.every_steps=1")
    plain = undisturbed("hand", seed, tmp_path_factory.mktemp("plain"))
    assert [weights for _, weights in told] == [weights for _, weights in plain]
    assert all(step > 0 for step, _ in told)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_window_of_accelerate_is_gathered_again_from_its_beginning(
    seed: int, train: Callable[..., Told], tmp_path_factory: pytest.TempPathFactory
) -> None:
    pytest.importorskip("accelerate")
    told = train("accelerate", seed, seed + 1, "--set=checkpoint.every_steps=3")
    plain = undisturbed("accelerate", seed, tmp_path_factory.mktemp("plain"))
    assert [weights for _, weights in told] == [weights for _, weights in plain]
    assert all(step > 0 for step, _ in told)
