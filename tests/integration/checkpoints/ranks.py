"""Runs the training program on several ranks, and seals what they saved as a sidecar would."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch.distributed import TCPStore

from holdfast.contract.page import Identity, Reply
from holdfast_sidecar.checkpoint.directory import CheckpointDirectory
from holdfast_sidecar.checkpoint.writer.requests import HashFiles, WrittenPart
from holdfast_sidecar.checkpoint.writer.service import Answering
from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.records.checkpoint import CheckpointOrder, LedgerEntry, SavedPart
from holdfast_sidecar.records.plan import Member, Plan

ROOT = Path(__file__).parents[3]
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


class Ranks:
    """Starts ranks, on a store of this process as under a launcher, and waits for their end."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._runs = 0
        command = [sys.executable, "-m", "tests.integration.checkpoints.nursery"]
        self._nursery = subprocess.Popen(
            command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def close(self) -> None:
        """End the process that the ranks come from."""
        self._nursery.communicate(timeout=10)

    def __call__(
        self,
        world_size: int,
        root: Path | str,
        config: dict[str, Any],
        resume: list[Any] | None = None,
        per_rank: dict[int, dict[str, Any]] | None = None,
        timeout_s: float = 60,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> list[Ended]:
        """Run all ranks to their end; one that does not end within the time fails the test."""
        self._runs += 1
        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        shared = {
            "WORLD_SIZE": str(world_size),
            "LOCAL_WORLD_SIZE": str(world_size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "HOLDFAST_CHECKPOINT_DIR": str(root),
            # No launcher ends the survivors of a rank that dies while it saves: they wait this out.
            "HOLDFAST_CHECKPOINT_WRITE_TIMEOUT_S": "3",
            "HOLDFAST_JOB": JOB,
            "HOLDFAST_RESUME": json.dumps([dataclasses.asdict(c) for c in resume or []]),
            **environment,
        }
        ranks = [
            {
                "environment": {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                "config": {**config, **(per_rank or {}).get(rank, {})},
                "out": str(self._scratch / f"{self._runs}-{rank}.out"),
                "log": str(self._scratch / f"{self._runs}-{rank}.log"),
            }
            for rank in range(world_size)
        ]
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        self._nursery.stdin.write(json.dumps({"ranks": ranks, "timeout_s": timeout_s}) + "\n")
        self._nursery.stdin.flush()
        codes = json.loads(self._nursery.stdout.readline())
        ends = [_read_end(rank, code) for rank, code in zip(ranks, codes, strict=True)]
        late = [end.log for end in ends if end.exit_code is None]
        assert not late, f"a rank did not end within {timeout_s} s:\n{late[0]}"
        return ends


def _read_end(rank: dict[str, Any], code: int) -> Ended:
    lines = [line for line in Path(rank["out"]).read_text().splitlines() if line.startswith("{")]
    return Ended(code, json.loads(lines[-1]) if lines else {}, Path(rank["log"]).read_text())


def directory(root: Path | str, **settings: Any) -> CheckpointDirectory:
    return CheckpointDirectory(JOB, CheckpointSettings(dir=str(root), **settings))


def plan(world_size: int, attempt: int = 0) -> Plan:
    member = Member("node", "1", 0, 0, world_size)
    return Plan(attempt, 1, "running", [member], world_size)


def seal(
    root: Path | str,
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
    hashed = Answering(JOB, CheckpointSettings()).answer(
        HashFiles(order.identifier, order.path, ranks), lambda *_: None
    )
    assert isinstance(hashed, WrittenPart)
    return SavedPart(order.identifier, {str(rank): "saved" for rank in ranks}, hashed.files)
