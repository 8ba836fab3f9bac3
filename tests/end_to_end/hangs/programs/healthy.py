"""A training that is well and often looks as if it were not, for as long as it is told to run.

Batches of very different length, a slow first step, evaluations, slow saves, an upload whose answer
takes 40 s, a loader that stalls for 30 s: never more than one of the long ones at a time. Ranks
write lines as in training.py; "habit" is written before each of these.
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

RANK = int(os.environ["RANK"])
WORLD = int(os.environ["WORLD_SIZE"])

STEP_S = 0.05


def write(directory: Path, event: str, step: int) -> None:
    line = f"{time.monotonic_ns()} {event} {RANK} {WORLD} {os.getpid()} 0 {step}\n"
    with (directory / f"rank-{RANK}-{os.getpid()}.log").open("a") as log:
        log.write(line)


class Batches(IterableDataset[torch.Tensor]):
    """Endless batches; those of rank 1 are sometimes long in coming."""

    def __init__(self, stall_every: int, stall_s: float) -> None:
        self.stall_every = stall_every
        self.stall_s = stall_s

    def __iter__(self) -> Iterator[torch.Tensor]:
        number = 0
        while True:
            number += 1
            if RANK == 1 and number % self.stall_every == 0:
                time.sleep(self.stall_s)  # a worker that waits for storage
            yield torch.randn(16, 64)


def upload(answer_s: float, in_thread: bool) -> None:
    """Send something to a server that takes its time, as a tracker or an object store may."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        address = server.getsockname()

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                time.sleep(answer_s)
                connection.sendall(b"200")

        def ask() -> None:
            with socket.create_connection(address) as connection:
                connection.sendall(b"PUT")
                connection.recv(3)

        threading.Thread(target=answer).start()
        if not in_thread:
            ask()
            return
        asking = threading.Thread(target=ask, name="uploader")
        asking.start()
        asking.join()


def main() -> None:
    options = parse()
    ends_s = time.monotonic() + options.seconds
    torch.set_num_threads(1)
    torch.manual_seed(RANK)
    chance = random.Random(7)  # the same on every rank, so that they agree on what is due
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(64, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = Batches(options.every * 3, options.stall_s)
    habits: list[tuple[str, Callable[[], None]]] = [
        ("upload", lambda: upload(options.upload_s, in_thread=False)),
        ("upload-by-thread", lambda: upload(options.upload_s, in_thread=True)),
        ("evaluation", lambda: evaluate(model, chance.uniform(1.0, 4.0))),
        ("save", lambda: save(model, options.directory)),
    ]
    for step, batch in enumerate(DataLoader(data, batch_size=None, num_workers=1), start=1):
        time.sleep(STEP_S * 10 ** chance.uniform(-0.5, 0.5) if step > 1 else 5.0)
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        if step % options.every == 0:
            name, habit = habits[step // options.every % len(habits)]
            if RANK == 0 or name == "evaluation":
                write(options.directory, "habit", step)
                habit()
        write(options.directory, "step", step)
        is_over = torch.tensor([float(time.monotonic() > ends_s)])
        dist.all_reduce(is_over, dist.ReduceOp.MAX)
        if is_over:
            break


def evaluate(model: Any, seconds: float) -> None:
    """Forward passes without gradients, on every rank for a time of its own."""
    until_s = time.monotonic() + seconds + RANK
    with torch.no_grad():
        while time.monotonic() < until_s:
            model.module(torch.randn(64, 64))
            time.sleep(0.01)


def save(model: Any, directory: Path) -> None:
    """A save that a slow disk holds up."""
    torch.save(model.state_dict(), directory / "weights.pt")
    with (directory / "weights.pt").open("ab") as file:
        for _ in range(20):
            file.write(b"\0" * 65_536)
            file.flush()
            os.fsync(file.fileno())
            time.sleep(0.1)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--every", type=int, default=150, help="steps between two habits")
    parser.add_argument("--upload-s", type=float, default=40.0)
    parser.add_argument("--stall-s", type=float, default=30.0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
