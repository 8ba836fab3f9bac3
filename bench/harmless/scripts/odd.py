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
PIECES_PER_S = 1500
"""Each some 0.5 to 0.7 ms of a core."""
BLOCK = bytes(700_000)

pieces_s: list[float] = []
"""CPU time of each piece of a timed job, which says how fast the machine is just now."""

WIDTH = int(os.environ.get("ODD_WIDTH", "32"))

stepped_s: list[float] = []
"""When the first step was over, and the last one."""


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
    """The rest of a step."""
    if IS_TIMED:
        compute(STEP_S)
    else:
        time.sleep(STEP_S)


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
    stepped_s[1:] = [time.monotonic()]
    (OUT / f"step-{rank()}").write_text(str(step))


def finish(*modules: nn.Module, more: object = None) -> None:
    """Leave what two runs are compared by: every bit of the weights, and whatever else counts."""
    digest = hashlib.sha256()
    for module in modules:
        for name, value in sorted(module.state_dict().items()):
            whole = value.full_tensor() if hasattr(value, "full_tensor") else value
            digest.update(name.encode())
            digest.update(whole.detach().cpu().contiguous().numpy().tobytes())
    result = {
        "weights": digest.hexdigest(),
        "more": more,
        "seconds": stepped_s[-1] - stepped_s[0] if stepped_s else 0.0,
        "piece_s": statistics.median(pieces_s) if pieces_s else None,
    }
    path = OUT / f"result-{rank()}.json"
    path.with_suffix(".writing").write_text(json.dumps(result))
    path.with_suffix(".writing").rename(path)
    distributed.barrier()
    distributed.destroy_process_group()
