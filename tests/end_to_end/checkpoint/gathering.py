"""Two ranks that gather the gradients of four batches for each step of their optimizer.

The last window of each pass is a short one. Arguments: by hand or with Accelerate, the seed, and
how many batches of a window are gathered when a rank is killed (-1: none is).
"""

import hashlib
import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, DistributedSampler

import holdfast

WINDOW = 4
PASSES = 8
PER_PASS = 10
PAUSE_S = 0.08
SNAPSHOTS_BEGIN = 30
"""Behind so many batches there are snapshots, even where slots are made slowly."""
RANK = int(os.environ["RANK"])
ATTEMPT = int(os.environ.get("HOLDFAST_ATTEMPT", "0"))
OUT = Path(os.environ["OUT"])


class Noisy(torch.utils.data.Dataset):
    """Accelerate's loaders fetch a batch ahead: its noise would not come again after a resume."""

    noise = 0.0 if sys.argv[1] == "accelerate" else 0.01

    def __len__(self):
        return 2 * 2 * PER_PASS

    def __getitem__(self, index):
        return torch.full((4,), index / 40) + self.noise * torch.randn(4)


def build():
    torch.manual_seed(int(sys.argv[2]))
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1)
    )
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def disturb(job, gathered):
    """Behind each batch. Rank 1 of the first attempt dies once it can be resumed from something."""
    if gathered < 0 or ATTEMPT > 0:
        return
    time.sleep(PAUSE_S)
    step = job.step + 1
    saved = list(Path(os.environ["HOLDFAST_CHECKPOINT_DIR"]).glob("*/manifest.json"))
    is_time = saved if sys.argv[1] == "accelerate" else step > SNAPSHOTS_BEGIN
    if RANK == 1 and is_time and step % PER_PASS % WINDOW == gathered:
        os.kill(os.getpid(), signal.SIGKILL)


def by_hand(gathered):
    torch.distributed.init_process_group("gloo")
    model, optimizer = build()
    model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
    loader = DataLoader(Noisy(), 2, sampler=DistributedSampler(Noisy(), seed=3))
    torch.manual_seed(RANK)
    job = holdfast.attach(model=model, optimizer=optimizer, loader=loader)
    resumed = job.resume()
    for batch in job.steps(loader, epochs=PASSES):
        in_pass = job.step % PER_PASS
        model(batch).square().mean().backward()
        if in_pass % WINDOW == WINDOW - 1 or in_pass == PER_PASS - 1:
            optimizer.step()
            optimizer.zero_grad()
        disturb(job, gathered)
    return resumed, model.module


def with_accelerate(gathered):
    from accelerate import Accelerator
    from accelerate.utils import DistributedDataParallelKwargs

    from holdfast.adapters import accelerate as adapter

    handlers = [DistributedDataParallelKwargs(find_unused_parameters=True)]
    accelerator = Accelerator(
        cpu=True, gradient_accumulation_steps=WINDOW, kwargs_handlers=handlers
    )
    model, optimizer = build()
    loader = DataLoader(Noisy(), 2, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    torch.manual_seed(RANK)
    job = adapter.attach(accelerator)
    resumed = job.resume()
    for batch in job.steps(loader, epochs=PASSES):
        with accelerator.accumulate(model):
            accelerator.backward(model(batch).square().mean())
            optimizer.step()
            optimizer.zero_grad()
        disturb(job, gathered)
    return resumed, accelerator.unwrap_model(model)


def digest(model):
    total = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        total.update(name.encode() + value.detach().numpy().tobytes())
    return total.hexdigest()


if __name__ == "__main__":
    torch.set_num_threads(1)
    way = {"hand": by_hand, "accelerate": with_accelerate}[sys.argv[1]]
    resumed, model = way(int(sys.argv[3]))
    (OUT / f"end-{RANK}").write_text(f"{resumed} {digest(model)}")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
