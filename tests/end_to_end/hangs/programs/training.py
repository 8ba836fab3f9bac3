"""A small DDP training over gloo in which one rank hangs at a given step, in a given way.

Each rank writes a line per event to a file of its own: time (CLOCK_MONOTONIC ns), event, rank,
world size, pid, attempt, step. "hang" is the moment before it strikes. With several kinds, each
attempt takes the next one; when there are no more, training ends well.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.util
import multiprocessing
import os
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from kinds import BY_NAME, COLLECTIVE, DATA, FEEDER, FORWARD, LOADER, OPTIMIZER, Kind
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

RANK = int(os.environ["RANK"])
WORLD = int(os.environ["WORLD_SIZE"])
ATTEMPT = int(os.environ.get("HOLDFAST_ATTEMPT", os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")))


STARVED_S = 0.3
"""Before a worker is struck it keeps its rank waiting, so that no batch is left that it made."""


class Scenario:
    """What strikes whom, when, where; told to the ranks' logs."""

    def __init__(self, options: argparse.Namespace) -> None:
        names = options.kinds.split(",")
        self.kind: Kind | None = BY_NAME[names[ATTEMPT]] if len(names) > ATTEMPT else None
        self.rank: int = options.rank
        self.step: int = options.step
        self.rank_pid = os.getpid()
        self.log: Path = options.directory / f"rank-{RANK}-{os.getpid()}.log"

    def write(self, event: str, step: int = 0) -> None:
        line = f"{time.monotonic_ns()} {event} {RANK} {WORLD} {self.rank_pid} {ATTEMPT} {step}\n"
        with self.log.open("a") as log:
            log.write(line)

    def is_due(self, place: str, step: int) -> bool:
        """Whether somebody is struck here and now."""
        return self.kind is not None and self.kind.place == place and step == self.step

    def pass_by(self, place: str, step: int, after_s: float = 0.0) -> None:
        """Be struck, if it is this rank's turn."""
        if self.is_due(place, step) and self.rank == RANK:
            assert self.kind is not None
            time.sleep(after_s)
            self.write("hang", step)
            self.kind.strike()


class Batches(IterableDataset[torch.Tensor]):
    """Endless batches; who makes them depends on whom the kind strikes."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario

    def __iter__(self) -> Iterator[torch.Tensor]:
        kind = self.scenario.kind
        source = self._fed() if kind is not None and kind.place == FEEDER else self._made()
        generator = torch.Generator().manual_seed(RANK)
        for _ in source:
            yield torch.randn(16, 64, generator=generator)

    def _made(self) -> Iterator[int]:
        step = 0
        while True:
            step += 1
            self.scenario.pass_by(DATA, step)
            self.scenario.pass_by(LOADER, step, after_s=STARVED_S)
            yield step

    def _fed(self) -> Iterator[int]:
        queue: Any = multiprocessing.Queue(2)
        feeder = multiprocessing.Process(target=feed, args=(queue, self.scenario), daemon=True)
        feeder.start()
        while True:
            yield queue.get()


def feed(queue: Any, scenario: Scenario) -> None:
    step = 0
    while True:
        step += 1
        scenario.pass_by(FEEDER, step, after_s=STARVED_S)
        queue.put(step)


def main() -> None:
    options = parse()
    os.environ["HANG_DIRECTORY"] = str(options.directory)
    scenario = Scenario(options)
    torch.set_num_threads(1)
    if importlib.util.find_spec("lean_torch"):
        importlib.import_module("lean_torch").leave_out()
    timeout = timedelta(seconds=options.group_timeout) if options.group_timeout else None
    dist.init_process_group("gloo", timeout=timeout)
    beside = dist.new_group(timeout=timeout)
    model = DistributedDataParallel(torch.nn.Linear(64, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    optimizer.register_step_post_hook(lambda *_: scenario.pass_by(OPTIMIZER, step + 1))
    heartbeat = open_heartbeat() if options.nvrx else None
    workers = int(scenario.kind is not None and scenario.kind.place == LOADER)
    for batch in DataLoader(Batches(scenario), batch_size=None, num_workers=workers):
        time.sleep(options.step_s)
        scenario.pass_by(FORWARD, step + 1)
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        meet(scenario, beside, step + 1)
        step += 1
        if heartbeat is not None:
            heartbeat.send_heartbeat()
        scenario.write("step", step)
        if scenario.kind is None and step >= options.step:
            break


def meet(scenario: Scenario, group: Any, step: int) -> None:
    """A collective that the script calls itself, in a group of its own, as for a metric."""
    collective = functools.partial(dist.all_reduce, torch.ones(1), group=group)
    if not scenario.is_due(COLLECTIVE, step):
        collective()
        return
    assert scenario.kind is not None
    if scenario.rank != RANK:
        time.sleep(0.2)
        collective()
        return
    scenario.write("hang", step)
    scenario.kind.strike(collective)


def open_heartbeat() -> Any:
    """NVRx's own per-step call; its launcher needs it to see a hang."""
    fault_tolerance = importlib.import_module("nvidia_resiliency_ext.fault_tolerance")
    client = fault_tolerance.RankMonitorClient()
    client.init_workload_monitoring()
    return client


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--kinds", required=True, help="by attempt, separated by commas")
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--step", type=int, default=25)
    parser.add_argument("--step-s", type=float, default=0.09)
    parser.add_argument("--group-timeout", type=float, default=0.0)
    parser.add_argument("--nvrx", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
