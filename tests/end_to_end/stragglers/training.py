"""Ranks that mostly sleep; one of them takes half as long again from a step on."""

import os
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

OUT = Path(os.environ["OUT"])
RANK = int(os.environ["RANK"])
SLOW_RANK, SLOW_FROM = int(sys.argv[1]), int(sys.argv[2])
FORWARD_S = 0.15


def train():
    import lean_torch
    import torch

    lean_torch.leave_out()
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")

    class Sleeping(torch.nn.Linear):
        longer = 1.0

        def forward(self, batch):
            time.sleep(FORWARD_S * self.longer)
            return super().forward(batch)

    sleeping = Sleeping(8, 1)
    model = torch.nn.parallel.DistributedDataParallel(sleeping)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    while True:
        step += 1
        sleeping.longer = 1.5 if RANK == SLOW_RANK and step >= SLOW_FROM else 1.0
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        # What one rank was told and another not yet would leave them waiting for each other.
        told = torch.tensor([float((OUT / "finish").exists())])
        torch.distributed.all_reduce(told, torch.distributed.ReduceOp.MAX)
        if told[0]:
            break


train()
