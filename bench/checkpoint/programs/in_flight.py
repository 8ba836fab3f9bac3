"""Steps of one kind, timed with nothing in flight and while a write is.

The state is saved by turns; what the loop is kept by for the copy itself is not part of any step.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist

import holdfast
from bench.checkpoint import names, savers, state
from bench.checkpoint.telling import OUT, tell

STEP_S = 0.04
IDLE_STEPS = 30
SETTLING_STEPS = 10
"""Left out after a write: what it dirtied is still being written back."""
WRITE_LIMIT_S = 120.0
ABSENT, RUNNING, OVER = 0.0, 1.0, 2.0


def main(megabytes: int, kind: str, rounds: int, contestants: list[str]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model, optimizer = state.make(megabytes)
    tensors = state.tensors(model, optimizer)
    job = holdfast.attach(model=model, optimizer=optimizer)
    job.resume()
    work = sleep if kind == names.SLEEPING else computing()
    loop = iter(job.steps(range(10**9)))
    ways = {name: savers.make(name) for name in contestants if name != names.HOLDFAST}
    folder = Path(os.environ[OUT]).parent
    await_slots(loop, work)
    for number in range(rounds):
        for name in turned(contestants, number):
            idle = [timed(loop, work, lambda: ABSENT)[0] for _ in range(IDLE_STEPS)]
            started_ns = time.monotonic_ns()
            if name == names.HOLDFAST:
                busy = in_flight(loop, work, watch_checkpoints(folder / "checkpoints"))
            else:
                place = shared_place(folder)
                rest = ways[name].begin(tensors, place)
                busy = in_flight(loop, work, watch(rest))
                dist.barrier()
                savers.remove(place)
            took_s = (time.monotonic_ns() - started_ns) / 1e9
            if dist.get_rank() == 0:
                tell(contestant=name, kind=kind, idle_s=idle, busy_s=busy, write_s=took_s)
            for _ in range(SETTLING_STEPS):
                timed(loop, work, lambda: ABSENT)
    tell(done=True)


def shared_place(folder: Path) -> Path:
    """A fresh place that all ranks save into."""
    chosen = [tempfile.mkdtemp(dir=folder) if dist.get_rank() == 0 else ""]
    dist.broadcast_object_list(chosen)
    return Path(chosen[0], "saved")


def watch(rest: savers.Rest) -> Callable[[], float]:
    """How far a write is that this process has begun."""
    return lambda: OVER if rest.done() else RUNNING


def turned(contestants: list[str], number: int) -> list[str]:
    """Another one first in each round."""
    start = number % len(contestants)
    return [*contestants[start:], *contestants[:start]]


def await_slots(loop: Iterator[int], work: Callable[[], None]) -> None:
    """Let the sidecar make room, and the leader hear of it."""
    end_s = time.monotonic() + 10.0
    while timed(loop, work, lambda: OVER if time.monotonic() > end_s else ABSENT)[1] != OVER:
        continue


def in_flight(
    loop: Iterator[int], work: Callable[[], None], look: Callable[[], float]
) -> list[float]:
    """Times of the steps that were made wholly while the write ran."""
    busy, before = [], ABSENT
    end_s = time.monotonic() + WRITE_LIMIT_S
    while before != OVER:
        took_s, after = timed(loop, work, look)
        if before == after == RUNNING:
            busy.append(took_s)
        if time.monotonic() > end_s:
            raise SystemExit("a write never ended")
        before = after
    return busy


def timed(
    loop: Iterator[int], work: Callable[[], None], look: Callable[[], float]
) -> tuple[float, float]:
    """One step of all ranks: how long it took, and how far the write is for the slowest of them."""
    next(loop)
    started = time.perf_counter_ns()
    work()
    seen = torch.tensor([look()])
    dist.all_reduce(seen, dist.ReduceOp.MIN)
    return (time.perf_counter_ns() - started) / 1e9, float(seen.item())


def watch_checkpoints(root: Path) -> Callable[[], float]:
    """How far the checkpoint is that is asked for here."""
    before = len(list(root.glob("*/manifest.json")))
    if dist.get_rank() == 0:
        tell(wants_checkpoint=True)

    def look() -> float:
        # Asked for at once, so there is one directory that has no manifest yet, or none.
        if len(list(root.glob("*/manifest.json"))) > before:
            return OVER
        return RUNNING if len(list(root.glob("step-*"))) > before else ABSENT

    return look


def sleep() -> None:
    """A step that waits, for a GPU say."""
    time.sleep(STEP_S)


def computing() -> Callable[[], None]:
    """A step that computes for about as long, in one thread."""
    left, right = torch.randn(384, 384), torch.randn(384, 384)
    count, spent_s = 0, 0.0
    while spent_s < STEP_S:
        started = time.perf_counter()
        left @ right
        spent_s += time.perf_counter() - started
        count += 1

    def work() -> None:
        for _ in range(count):
            left @ right

    return work


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4].split(";"))
