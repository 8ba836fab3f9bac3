"""Says every step it begins. In the first attempts a rank dies at a moment drawn by chance."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist

import holdfast
from bench.checkpoint import state
from bench.checkpoint.telling import tell
from holdfast.contract.page import Word
from holdfast.rank import process

ATTEMPT = int(os.environ["HOLDFAST_ATTEMPT"])
STATE_MB = 20
STEP_S = 0.005
STEPS_AFTER = 20
"""Of the last attempt, which nobody disturbs."""
LONGEST_S = 0.5
"""Until a rank dies: many steps, so that every moment of one has its chance."""


def main(kills: int, step_s: float) -> None:
    """`kills` is how many attempts end by this program's own doing; then it goes on until told."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model, optimizer = state.make(STATE_MB)
    job = holdfast.attach(model=model, optimizer=optimizer)
    start = job.resume()
    tell(resumed=start)
    recorder = process.current()
    assert recorder is not None
    chance = random.Random(ATTEMPT)
    victim, delay_s = chance.randrange(dist.get_world_size()), chance.uniform(0, LONGEST_S)
    is_struck = False
    for step in job.steps(range(10**9)):
        tell(step=step, existing=recorder.word(Word.SNAPSHOT_EXISTING) - 1)
        if kills and kills == ATTEMPT and step > start + STEPS_AFTER:
            break
        optimizer.step()
        dist.barrier()
        time.sleep(step_s)
        # Only what a snapshot followed can be kept: the first steps of a job have no slots yet.
        may_die = kills > ATTEMPT and recorder.word(Word.SNAPSHOTS_TAKEN) > 2
        if may_die and dist.get_rank() == victim and not is_struck:
            is_struck = True
            threading.Timer(delay_s, os.kill, (os.getpid(), signal.SIGKILL)).start()
    tell(done=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
