"""A small DDP training over gloo of which rank 1 works between two steps, and then has a fault.

Each kind of work lasts `--seconds`, while rank 0 waits in a collective. What befalls rank 1 after
it is named by `--faults`, one for each attempt; the attempt after the last one ends well. Lines in
OUT/rank-*.log: what is done, attempt, pid.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from kinds import deadlock, loop, stop_itself
from torch.nn.parallel import DistributedDataParallel

import holdfast

RANK = int(os.environ["RANK"])
ATTEMPT = int(os.environ["HOLDFAST_ATTEMPT"])
FAULTS = {"stopped": stop_itself, "deadlock": deadlock, "endless-loop": loop}

STEPS = 12
"""Before the first work and after each one: enough to learn how long a step takes."""

SPIN = """import sys, time
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    pass"""


def say(what: str) -> None:
    with Path(os.environ["OUT"], f"rank-{RANK}.log").open("a") as log:
        log.write(f"{what} {ATTEMPT} {os.getpid()}\n")


def compute(seconds: float) -> None:
    """In the main thread, without a hook that would see it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))


def compute_in_a_child(seconds: float) -> None:
    subprocess.run([sys.executable, "-c", SPIN, str(seconds)], check=True)


def receive(seconds: float) -> None:
    """From a server that sends a little now and then."""
    reading, writing = socket.socketpair()
    with reading, writing:
        serving = threading.Thread(target=drip, args=(writing, seconds))
        serving.start()
        while reading.recv(65_536) != b"end":
            pass
        serving.join()


def drip(writing: socket.socket, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        writing.send(bytes(4096))
        time.sleep(0.2)
    time.sleep(0.2)
    writing.send(b"end")


def upload_by_a_thread(seconds: float) -> None:
    """The main thread waits for it at a lock."""
    uploading = threading.Thread(target=receive, args=(seconds,), name="uploader")
    uploading.start()
    uploading.join()


def try_again_later(seconds: float) -> None:
    """A pause between two tries, at a lock with an end."""
    threading.Event().wait(seconds)


def roll_out(seconds: float) -> None:
    """At a lock that looks as if nobody would ever let it go."""
    with holdfast.busy("rollout"):
        done = threading.Event()
        threading.Timer(seconds, done.set).start()
        done.wait()


WORKS: tuple[Callable[[float], None], ...] = (
    *(compute, compute_in_a_child, receive, upload_by_a_thread, try_again_later, roll_out),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--faults", default="")
    parser.add_argument("--group-timeout", type=float, default=1800.0)
    options = parser.parse_args()
    faults = [name for name in options.faults.split(",") if name]
    torch.set_num_threads(1)
    if RANK == 1 and ATTEMPT == 0:
        say("building an index")
        compute(options.seconds)
    dist.init_process_group("gloo", timeout=timedelta(seconds=options.group_timeout))
    model = DistributedDataParallel(torch.nn.Linear(64, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train(model, optimizer)
    for work in WORKS if ATTEMPT == 0 else ():
        if RANK == 1:
            say(work.__name__)
            work(options.seconds)
        train(model, optimizer)
    for name in faults[ATTEMPT : ATTEMPT + 1]:
        if RANK == 1:
            say(name)
            FAULTS[name]()
        train(model, optimizer)
    say("done")


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for _ in range(STEPS):
        time.sleep(0.05)
        optimizer.zero_grad()
        model(torch.randn(16, 64)).square().mean().backward()
        optimizer.step()


if __name__ == "__main__":
    main()
