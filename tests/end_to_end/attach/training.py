"""Trains until the file `finish` is there. A rank as its launcher numbers it, nothing of ours."""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist


def number(*names: str) -> int:
    return next(int(os.environ[name]) for name in names if name in os.environ)


def main() -> None:
    torch.set_num_threads(1)
    out = Path(os.environ["OUT"])
    rank = number("OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "RANK")
    size = number("OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "WORLD_SIZE")
    dist.init_process_group(
        "gloo", init_method=f"file://{out / 'store'}", rank=rank, world_size=size
    )
    (out / f"rank-{rank}.pid").write_text(str(os.getpid()))
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while True:
        is_over = torch.tensor([float((out / "finish").exists())])
        dist.all_reduce(is_over)
        if is_over.item():
            break
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8)).square().sum()
        time.sleep(0.02)
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
