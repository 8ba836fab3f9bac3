"""Runs the training program on several ranks, and seals what they saved as a sidecar would."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.page import Identity, Reply, ReplyState
from holdfast_sidecar.checkpoints.directory import CheckpointDirectory
from holdfast_sidecar.checkpoints.parts import PartHashing
from holdfast_sidecar.coordination.reports import (
    CheckpointOrder,
    LedgerEntry,
    Member,
    Plan,
    SavedPart,
)
from holdfast_sidecar.settings import CheckpointSettings

TRAINING = Path(__file__).with_name("training.py")
JOB = "tested"


@dataclass(frozen=True)
class Ended:
    """How one rank ended."""

    exit_code: int
    said: dict[str, Any]
    log: str

    @property
    def states(self) -> list[str]:
        return [state for state, _, _ in self.said["replies"]]


@dataclass(frozen=True)
class Look:
    """A sidecar's look at a rank, as far as checkpoints go."""

    identity: Identity
    reply: Reply | None


def run_ranks(
    world_size: int,
    root: Path,
    config: dict[str, Any],
    per_rank: dict[int, dict[str, Any]] | None = None,
    resume: list[Any] | None = None,
    timeout_s: float = 90,
) -> list[Ended]:
    """Run all ranks to their end; one that is still there at the deadline is killed and fails."""
    port = free_port()
    candidates = [
        {"identifier": c.identifier, "path": c.path, "step": c.step} for c in resume or []
    ]
    started = []
    for rank in range(world_size):
        environment = {
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(world_size),
            "LOCAL_WORLD_SIZE": str(world_size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "OMP_NUM_THREADS": "1",
            "HOLDFAST_CHECKPOINT_DIR": str(root),
            "HOLDFAST_JOB": JOB,
            "HOLDFAST_RESUME": json.dumps(candidates),
        }
        mine = {**config, **(per_rank or {}).get(rank, {})}
        command = [sys.executable, str(TRAINING), json.dumps(mine)]
        started.append(
            subprocess.Popen(
                command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        )
    return [_await(child, timeout_s) for child in started]


def _await(child: subprocess.Popen[str], timeout_s: float) -> Ended:
    try:
        out, log = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        child.kill()
        out, log = child.communicate()
        raise AssertionError(f"a rank did not end within {timeout_s} s:\n{log}") from None
    lines = [line for line in out.splitlines() if line.startswith("{")]
    return Ended(child.returncode, json.loads(lines[-1]) if lines else {}, log)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def directory(root: Path, **settings: Any) -> CheckpointDirectory:
    return CheckpointDirectory(JOB, CheckpointSettings(dir=str(root), **settings))


def plan(world_size: int, attempt: int = 0) -> Plan:
    member = Member("node", "1", 0, 0, world_size)
    return Plan(attempt, 1, "running", [member], world_size)


def seal(
    root: Path,
    step: int,
    identifier: str,
    world_size: int,
    attempt: int = 0,
    nodes: list[list[int]] | None = None,
) -> LedgerEntry:
    """What sidecars and leader do once every rank replied `saved`."""
    checkpoints = directory(root)
    path = checkpoints.path(step, identifier)
    order = CheckpointOrder(identifier, attempt, 1, step, path, "armed", 60.0)
    parts = [hash_part(order, ranks) for ranks in nodes or [list(range(world_size))]]
    return checkpoints.finish(order, plan(world_size, attempt), parts)


def hash_part(order: CheckpointOrder, ranks: list[int]) -> SavedPart:
    hashing = PartHashing()
    reply = Reply(ReplyState.SAVED, order.step, 1, 1, order.identifier)
    looks = [
        Look(Identity(1, 1, order.attempt, 1, rank, rank, 1, 1, "node", JOB), reply)
        for rank in ranks
    ]
    hashing.follow(order, looks)
    assert hashing.wait(30)
    part = hashing.follow(order, looks)
    assert part is not None
    return part
