"""The small DDP model whose steps are timed with and without what is being priced."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def make_model() -> DistributedDataParallel:
    """One thread, and the same weights each time; joins the process group."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    return DistributedDataParallel(
        torch.nn.Sequential(
            torch.nn.Linear(256, 1024),
            torch.nn.ReLU(),
            torch.nn.Linear(1024, 1024),
            torch.nn.ReLU(),
            torch.nn.Linear(1024, 10),
        )
    )
