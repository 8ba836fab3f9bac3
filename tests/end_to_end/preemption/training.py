"""A rank for the tests here: the three lines, samples noted, and what the environment asks for.

UNTIL (or the file `until`): the last step; WORKERS: start method of two DataLoader workers;
EVALUATE_AT: the step that evaluates as long as the file `evaluate` is there. BROKEN_AT: the step
that raises. Where there is a file `stuck-<rank>`, that rank is stuck in C code. They build their
model for as long as the file `building` is there.
"""

import ctypes
import json
import os
import sys
import time
from pathlib import Path

import torch

import holdfast

sys.path.append(str(Path(__file__).parents[1]))
import lean_torch

OUT = Path(os.environ["OUT"])
RANK = int(os.environ["RANK"])
UNTIL = int(os.environ.get("UNTIL", "100000"))
UNTIL_FILE = OUT / "until"
WORKERS = os.environ.get("WORKERS", "")
EVALUATE_AT = int(os.environ.get("EVALUATE_AT", "-1"))
BROKEN_AT = int(os.environ.get("BROKEN_AT", "-1"))
SAMPLES = 64
BATCH = 2


def until() -> int:
    return int(UNTIL_FILE.read_text()) if UNTIL_FILE.exists() else UNTIL


def main() -> None:
    lean_torch.leave_out()
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Linear(1, 1), find_unused_parameters=True
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    sampler = torch.utils.data.DistributedSampler(range(SAMPLES))
    settings = {"num_workers": 2, "multiprocessing_context": WORKERS} if WORKERS else {}
    loader = torch.utils.data.DataLoader(range(SAMPLES), BATCH, sampler=sampler, **settings)
    while (OUT / "building").exists():
        (OUT / f"is-building-{RANK}").touch()
        time.sleep(0.05)
    job = holdfast.attach(model=model, optimizer=optimizer, loader=loader)
    job.resume()
    with (OUT / f"samples-{RANK}").open("a", buffering=1) as log:
        for batch in job.steps(loader, until=until()):
            optimizer.zero_grad()
            model(batch.reshape(-1, 1) / SAMPLES).square().mean().backward()
            optimizer.step()
            log.write(json.dumps([job.step, batch.tolist()]) + "\n")
            if job.step == BROKEN_AT:
                raise ValueError(f"sample {batch[0]} has no label")
            time.sleep(0.02)
            if (OUT / f"stuck-{RANK}").exists():
                (OUT / f"is-stuck-{RANK}").touch()
                ctypes.PyDLL(None).read(os.pipe()[0], ctypes.create_string_buffer(1), 1)
            while job.step >= EVALUATE_AT >= 0 and (OUT / "evaluate").exists():
                time.sleep(0.05)
    (OUT / f"weights-{RANK}").write_text(repr([p.tolist() for p in model.parameters()]))


if __name__ == "__main__":
    main()
