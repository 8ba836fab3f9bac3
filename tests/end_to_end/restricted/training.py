"""Two ranks that train next to nothing; with `crash` one of them dies once, on its way."""

import os
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
import lean_torch
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import holdfast

FATAL_STEP = 30


def train(crashes):
    steps = 40 if crashes else 10
    distributed.init_process_group("gloo")
    rank, attempt = distributed.get_rank(), int(os.environ["HOLDFAST_ATTEMPT"])
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    job = holdfast.attach(model=model, optimizer=optimizer)
    start = job.resume()
    for step in job.steps(range(start, steps), until=steps):
        if crashes and attempt == 0 and step == FATAL_STEP:
            distributed.barrier()  # that many steps are completed on both
            if rank == 1:
                os._exit(7)
        optimizer.zero_grad()
        model(torch.ones(2, 4)).mean().backward()
        optimizer.step()
        time.sleep(0.04)
    name = f"{attempt}-{rank}-from-{start}"
    Path(os.environ["OUT"], name).touch()
    distributed.destroy_process_group()


if __name__ == "__main__":
    lean_torch.leave_out()
    train("crash" in sys.argv)
