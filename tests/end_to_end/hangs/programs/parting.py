"""Four ranks over gloo, of which one comes to a step with another collective than the others."""

from __future__ import annotations

import os
import time

import lean_torch
import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])
CULPRIT, STEP = 3, 20

lean_torch.leave_out()
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(1000):
    time.sleep(0.02)
    optimizer.zero_grad()
    model(torch.ones(2, 8)).square().mean().backward()
    optimizer.step()
    if (RANK, step) == (CULPRIT, STEP):
        dist.barrier()
    else:
        dist.all_reduce(torch.ones(3))
