"""The job that every contestant runs: a small DDP perceptron over gloo, saving every 20 steps.

Runs in any interpreter with torch; imports nothing of the benchmark. Each rank writes a line per
event to a file of its own: time (CLOCK_MONOTONIC ns), event, rank, world size, pid, attempt, step.
"""

import os
import time

STARTED_NS = time.monotonic_ns()  # before torch is imported: the process's first sign of life

import argparse  # noqa: E402
import importlib  # noqa: E402
from datetime import timedelta  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402


class Log:
    """This rank's events, one write each."""

    def __init__(self, directory: Path) -> None:
        self.rank = os.environ["RANK"]
        self.world = os.environ["WORLD_SIZE"]
        self.attempt = os.environ.get(
            "HOLDFAST_ATTEMPT", os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        )
        path = directory / f"rank-{self.rank}-{os.getpid()}.log"
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, event: str, step: int = 0, at_ns: int | None = None) -> None:
        at_ns = time.monotonic_ns() if at_ns is None else at_ns
        line = f"{at_ns} {event} {self.rank} {self.world} {os.getpid()} {self.attempt} {step}\n"
        os.write(self.file, line.encode())


def main() -> None:
    options = parse()
    log = Log(options.directory)
    log.write("started", at_ns=STARTED_NS)

    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    torch.manual_seed(0)
    timeout = timedelta(seconds=options.group_timeout) if options.group_timeout else None
    dist.init_process_group("gloo", timeout=timeout)
    log.write("joined")
    model = DistributedDataParallel(
        torch.nn.Sequential(
            torch.nn.Linear(256, 1024),
            torch.nn.ReLU(),
            torch.nn.Linear(1024, 1024),
            torch.nn.ReLU(),
            torch.nn.Linear(1024, 10),
        )
    )
    optimizer = (
        torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        if options.optimizer == "sgd"
        else torch.optim.AdamW(model.parameters(), lr=0.001)
    )
    checkpoint = options.directory / "checkpoint.pt"
    step = 0
    if checkpoint.exists():
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    log.write("loaded", step)
    heartbeat = open_heartbeat() if options.nvrx else None
    data = torch.Generator().manual_seed(dist.get_rank())
    while True:  # until the benchmark has seen enough
        time.sleep(options.sleep)
        inputs = torch.randn(32, 256, generator=data)
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % options.save_every == 0 and dist.get_rank() == 0:
            save(checkpoint, model, optimizer, step)
        if heartbeat is not None:
            heartbeat.send_heartbeat()
        log.write("step", step)


def save(path: Path, model: Any, optimizer: Any, step: int) -> None:
    import torch

    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    torch.save(state, path.with_suffix(".writing"))
    path.with_suffix(".writing").replace(path)


def open_heartbeat() -> Any:
    """NVRx's own per-step call; its launcher needs it to see a hang."""
    fault_tolerance = importlib.import_module("nvidia_resiliency_ext.fault_tolerance")

    client = fault_tolerance.RankMonitorClient()
    client.init_workload_monitoring()
    return client


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--optimizer", choices=("sgd", "adamw"), required=True)
    parser.add_argument("--sleep", type=float, default=0.040)
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--group-timeout", type=float, default=0.0)
    parser.add_argument("--nvrx", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
