"""What all odd jobs share: a start on record, a small training, a result that can be compared."""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

OUT = Path(os.environ["ODD_OUT"])
SEED = 1
ODD_S = float(os.environ.get("ODD_SECONDS", "8"))
"""How long the odd part of a job lasts."""
STEPS = int(os.environ.get("ODD_STEPS", "40"))
STEP_S = float(os.environ.get("ODD_STEP_SECONDS", "0.03"))
"""Beside its own small computation, so that there is time for what is done from outside."""

IS_TIMED = "ODD_TIMED" in os.environ
"""Then all that lasts is made of a fixed amount of work, so that two runs can be timed."""
DEVICE_SHARE = float(os.environ.get("ODD_DEVICE_SHARE", "0"))
PIECES_PER_S = 1500
"""Each some 0.5 to 0.7 ms of a core."""
BLOCK = bytes(700_000)

pieces_s: list[float] = []
"""CPU time of each piece of a timed job, which says how fast the machine is just now."""

WIDTH = int(os.environ.get("ODD_WIDTH", "32"))

stepped_s: list[float] = []
"""When each step was over."""
FIRST_STEPS = 20
"""In which what is done once per launch is done; a fifth of them where a job has few."""


def rank() -> int:
    return int(os.environ["RANK"])


def begin() -> None:
    """Put this start on record; join the others."""
    with (OUT / f"starts-{rank()}").open("a") as starts:
        starts.write(f"{os.getpid()}\n")
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")


def going_on(step: int) -> int:
    """Put on record where this start goes on."""
    with (OUT / f"resumed-{rank()}").open("a") as resumed:
        resumed.write(f"{step}\n")
    return step


def network(seed: int = 7) -> nn.Sequential:
    """The same weights on every rank and in every run."""
    torch.manual_seed(1000 * SEED + seed)
    return nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))


def replicated(module: nn.Module) -> DistributedDataParallel:
    """Under DDP, whose sums do not depend on what ran before (buckets are not laid out again)."""
    return DistributedDataParallel(module, find_unused_parameters=True)


def batch(step: int) -> torch.Tensor:
    """What this rank sees at this step."""
    chance = torch.Generator().manual_seed(100_000 * SEED + 100 * step + rank())
    return torch.randn(16, WIDTH, generator=chance)


def loss_of(model: nn.Module, step: int) -> torch.Tensor:
    return model(batch(step)).square().mean()


def compute(seconds: float) -> None:
    """Ordinary Python work in short pieces; with small sleeps between, unless it is timed."""
    if IS_TIMED:
        for _ in range(round(seconds * PIECES_PER_S)):
            _timed_piece()
        return
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        _piece()
        time.sleep(0.002)


def _timed_piece() -> None:
    """Work of native code: that of Python takes up to 30 % more in one process than in the next,
    by where its memory happens to lie."""
    begun_s = time.thread_time()
    hashlib.sha256(BLOCK).digest()
    pieces_s.append(time.thread_time() - begun_s)


def _piece() -> None:
    sum(index * index for index in range(20_000))


def pause() -> None:
    """The rest of a step; a timed one computes, and waits as for a device for its share."""
    if IS_TIMED:
        compute(STEP_S * (1 - DEVICE_SHARE))
        _await_device(STEP_S * DEVICE_SHARE)
    else:
        time.sleep(STEP_S)


def _await_device(seconds: float) -> None:
    """As long as so much work takes on this machine just now: pieces measure waits, too."""
    if pieces := round(seconds * PIECES_PER_S):
        time.sleep(pieces * statistics.mean(pieces_s[-PIECES_PER_S // 5 :]))


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    steps: Iterable[int] | None = None,
    between: Callable[[int], None] = lambda step: None,
) -> None:
    """A plain loop; `between` runs after each step."""
    for step in range(STEPS) if steps is None else steps:
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()
        pause()
        tell_step(step)
        between(step)


def tell_step(step: int) -> None:
    """For those who wait outside until the job is under way."""
    stepped_s.append(time.monotonic())
    (OUT / f"step-{rank()}").write_text(str(step))


def _lasted_s() -> tuple[float, float]:
    """The first steps, and all of them, from the end of the first one."""
    if not stepped_s:
        return 0.0, 0.0
    first_are_over_s = stepped_s[min(FIRST_STEPS, len(stepped_s) // 5)]
    return first_are_over_s - stepped_s[0], stepped_s[-1] - stepped_s[0]


def finish(*modules: nn.Module, more: object = None) -> None:
    """Leave what two runs are compared by: every bit of the weights, and whatever else counts."""
    digest = hashlib.sha256()
    for module in modules:
        for name, value in sorted(module.state_dict().items()):
            whole = value.full_tensor() if hasattr(value, "full_tensor") else value
            digest.update(name.encode())
            digest.update(whole.detach().cpu().contiguous().numpy().tobytes())
    first_s, seconds = _lasted_s()
    result = {
        "weights": digest.hexdigest(),
        "more": more,
        "first_s": first_s,
        "seconds": seconds,
        "piece_s": statistics.mean(pieces_s) if pieces_s else None,
    }
    path = OUT / f"result-{rank()}.json"
    path.with_suffix(".writing").write_text(json.dumps(result))
    path.with_suffix(".writing").rename(path)
    distributed.barrier()
    distributed.destroy_process_group()
