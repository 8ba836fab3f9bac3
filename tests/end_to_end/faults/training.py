"""Ranks for the tests here; which life they lead is their first argument.

`endless` trains until told to finish, without a line of Holdfast, `alone` without its peers too;
`resumable` has the three lines, `lagging` too, and one rank that becomes slow; `broken` fails at
the same step each time; `worker` starts helpers of every kind and imports torch only for those it
was asked for.
"""

import hashlib
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

OUT = Path(os.environ["OUT"])
RANK = int(os.environ["RANK"])
ATTEMPT = os.environ.get("HOLDFAST_ATTEMPT", "0")
SILENCE_S = 8.0
HELD_AT = 35


def said(word):
    return (OUT / word).exists()


def say(word, text=""):
    """Write a file, whole from the moment it is there."""
    new = OUT / f".{word}"
    new.write_text(text)
    new.rename(OUT / word)


def joined():
    """torch, with one thread and the other ranks."""
    import lean_torch
    import torch

    lean_torch.leave_out()
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    return torch


def endless():
    torch = joined()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    was_silent = said(f"silent-{RANK}")
    while True:
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        # What one rank was told and another not yet would leave them waiting for each other.
        told = torch.tensor([float(said("finish")), float(said("be-silent"))])
        torch.distributed.all_reduce(told, torch.distributed.ReduceOp.MAX)
        if told[0]:
            break
        if told[1] and not was_silent:
            time.sleep(SILENCE_S)
            was_silent = True
            say(f"silent-{RANK}")
        time.sleep(0.01)


def alone():
    """Trains beside the others, and needs none of them for a step."""
    torch = joined()
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while not said("finish"):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        time.sleep(0.01)


class Noisy:
    """Samples that take from the random numbers of torch and of Python."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        import torch

        return torch.full((4,), index / 64) + 0.01 * torch.randn(4) * random.random(), index


def resumable(until, pause_s):
    torch = joined()
    import holdfast

    torch.manual_seed(3)
    layers = [torch.nn.Linear(4, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1)]
    # Buckets that don't depend on the attempt: see the design's promise of identical weights.
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(*layers), find_unused_parameters=True
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    data = Noisy()
    sampler = torch.utils.data.DistributedSampler(data, seed=3)
    loader = torch.utils.data.DataLoader(data, 2, sampler=sampler)
    torch.manual_seed(100 + RANK)
    random.seed(RANK)
    job = holdfast.attach(model=model, optimizer=optimizer, loader=loader)
    say(f"start-{ATTEMPT}-{RANK}", str(job.resume()))
    with (OUT / f"samples-{ATTEMPT}-{RANK}").open("a", buffering=1) as log:
        for inputs, indices in job.steps(loader, until=int(until)):
            optimizer.zero_grad()
            loss = model(inputs).square().mean()
            loss.backward()
            optimizer.step()
            job.report(loss=loss)
            log.write(json.dumps([job.step, indices.tolist()]) + "\n")
            time.sleep(float(pause_s))
            while job.step == HELD_AT and said("hold"):
                time.sleep(0.05)
    digest = hashlib.sha256()
    for _, value in sorted(model.state_dict().items()):
        digest.update(value.numpy().tobytes())
    say(f"weights-{RANK}", digest.hexdigest())


def lagging(node):
    """Twice as long in forward on this node's first rank, once that is said."""
    joined()
    import torch

    import holdfast

    class Tired(torch.nn.Linear):
        def forward(self, inputs):
            place = os.environ["HOLDFAST_NODE"], os.environ["LOCAL_RANK"]
            is_tired = place == (node, "0") and said("tired")
            time.sleep(0.04)
            since_s = time.thread_time()
            while is_tired and time.thread_time() - since_s < 0.04:
                pass  # one that slept would be slow on any node
            return super().forward(inputs)

    model = torch.nn.parallel.DistributedDataParallel(Tired(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    job = holdfast.attach(model=model, optimizer=optimizer)
    say(f"start-{ATTEMPT}-{RANK}", str(job.resume()))
    for _ in job.steps(range(10**6)):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 4)).square().mean()
        loss.backward()
        optimizer.step()
        job.report(loss=loss)
        told = torch.tensor([float(said("finish"))])
        torch.distributed.all_reduce(told, torch.distributed.ReduceOp.MAX)
        if told[0]:
            break


def broken():
    torch = joined()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(20):
        if step == 5 and RANK == 1:
            raise ValueError("sample 17 has no label")
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()


def worker(ending, *helpers):
    """Start helpers, say so, and wait; then end well, or badly."""
    kept = [HELPERS[name]() for name in helpers]
    say(f"ready-{RANK}")
    while not said("finish"):
        time.sleep(0.02)
    if ending == "badly":
        os._exit(9)
    del kept


def loader_workers(method):
    import torch

    loader = torch.utils.data.DataLoader(
        Noisy(), 2, num_workers=1, multiprocessing_context=method, persistent_workers=True
    )
    batches = iter(loader)
    next(batches)
    return batches


def compiled():
    """A compiled step, and the processes that inductor compiles in."""
    import torch
    from torch._inductor.async_compile import AsyncCompile

    AsyncCompile.warm_pool()
    function = torch.compile(lambda x: (x * x + 1).sum())
    function(torch.ones(8))
    return function


HELPERS = {
    "fork": lambda: loader_workers("fork"),
    "spawn": lambda: loader_workers("spawn"),
    "compile": compiled,
    "command": lambda: subprocess.Popen(["sleep", "300"]),
}

if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
