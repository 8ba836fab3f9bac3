"""Sealed slots of a few tensors, as ranks leave them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tests.unit.three_lines.slots import make_slot

from holdfast.contract.snapshot_file import OWN_DIRECTORY
from holdfast.recording.placement import Placement
from holdfast.snapshots import layout
from holdfast.snapshots.slot import Author, open_slot
from holdfast.state.own_state import encode

JOB = "tested"


def shared_state(scale: float = 1.0) -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    return {
        "model/weight": scale * torch.randn(64, 32),
        "model/bias": scale * torch.randn(64),
        "optimizer/step": torch.tensor(7.0),
        "model/ids": torch.arange(10),
        "model/half": torch.randn(8).to(torch.bfloat16),
    }


def own_state(rank: int) -> dict[str, Any]:
    return {"rank": rank, "lr": 0.1, "buffer": torch.full((3,), float(rank))}


def seal_slot(
    shm: Path,
    rank: int,
    step: int,
    shared: dict[str, Any],
    own: dict[str, Any] | None = None,
    world_size: int = 1,
    attempt: int = 0,
    directory: str = OWN_DIRECTORY,
    number: int = 0,
    numbers: tuple[int, ...] = (),
    ancestors: tuple[str, ...] = (),
) -> Path:
    """A slot that holds this rank's part of a snapshot."""
    plain, tensors = encode(own_state(rank) if own is None else own)
    place = Placement(rank=rank, world_size=world_size)
    found = layout.sources(shared, tensors)
    plan = layout.plan(found, 4096, place)
    path = make_slot(shm / directory, rank, number, plan.file_size)
    slot = open_slot(path)
    assert slot is not None
    writing = slot.begin()
    assert writing is not None
    writing.describe(Author(JOB, attempt, 1, rank, world_size), plan, step)
    account = {
        "job": JOB,
        "attempt": attempt,
        "step": step,
        "identifier": "",
        "ancestors": list(ancestors),
        "rank": rank,
        "world_size": world_size,
        "finite": None,
        "torch": torch.__version__,
        "position": {"epoch": 0, "taken": step},
        "random_state": True,
    }
    state = {"step": step, "own": plain, "numbers": list(numbers), "account": account}
    writing.state(json.dumps(state).encode())
    data = slot.data(plan.data_offset, plan.data_size)
    for entry, source in zip(plan.entries, found, strict=True):
        layout.view(data, entry).copy_(source.tensor)
    writing.seal(1)
    return path
