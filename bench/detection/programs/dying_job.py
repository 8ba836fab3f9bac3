"""A job in whose first attempts a rank kills itself, by chance, having said when."""

from __future__ import annotations

import os
import random
import signal
import sys
import time

import torch
import torch.distributed as dist

from bench.checkpoint.telling import tell

ATTEMPT = int(os.environ["HOLDFAST_ATTEMPT"])
STEP_S = 0.02
STEPS_BEFORE = 25
"""Half a second at least: the sidecars have seen every rank by then."""


def main(kills: int) -> None:
    """`kills` is how many attempts end by this program's own doing."""
    dist.init_process_group("gloo")
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    parameter.grad = torch.zeros(1)
    chance = random.Random(ATTEMPT)
    victim = chance.randrange(dist.get_world_size())
    dies_at = STEPS_BEFORE + chance.randrange(STEPS_BEFORE)
    for step in range(10**9):
        if kills == ATTEMPT and step == STEPS_BEFORE:
            break
        dist.barrier()
        optimizer.step()
        if kills > ATTEMPT and step == dies_at and dist.get_rank() == victim:
            time.sleep(chance.uniform(0, STEP_S))
            tell(struck_unix_s=time.time())
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(STEP_S)
    tell(done=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
