"""Ranks that mostly sleep, and exchange a megabyte in each step; a second group of theirs idles."""

import os
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

OUT = Path(os.environ["OUT"])
FORWARD_S = 0.15
WIDTH = 512
"""Squared, of four bytes each."""


def train():
    import lean_torch
    import torch

    lean_torch.leave_out()
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    # As everybody has who saves, or counts something of all ranks, apart from the training.
    beside = torch.distributed.new_group()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(WIDTH, WIDTH))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    is_over = torch.zeros(1)
    while not is_over:
        optimizer.zero_grad()
        time.sleep(FORWARD_S)
        model(torch.randn(2, WIDTH)).square().mean().backward()
        optimizer.step()
        # What one rank was told and another not yet would leave them waiting for each other.
        is_over = torch.tensor([float((OUT / "finish").exists())])
        torch.distributed.all_reduce(is_over, torch.distributed.ReduceOp.MAX)
    torch.distributed.barrier(beside)


train()
