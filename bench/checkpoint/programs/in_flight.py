"""Steps of one kind, timed with nothing in flight and while a write is.

The state is saved by turns; what the loop is kept by for the copy itself is not part of any step.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
ROOM_STEPS = 300
"""Before Holdfast's next write: enough for a whole one of anybody else's."""
WRITE_LIMIT_S = 300.0
ABSENT, RUNNING, OVER = 0.0, 1.0, 2.0


def main(megabytes: int, kind: str, rounds: int, every: int, contestants: list[str]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model, optimizer = state.make(megabytes)
    tensors = state.tensors(model, optimizer)
    job = holdfast.attach(model=model, optimizer=optimizer)
    job.resume()
    steps = Steps(iter(job.steps(range(10**9))), sleep if kind == names.SLEEPING else computing())
    ways = {name: savers.make(name) for name in contestants if name != names.HOLDFAST}
    folder = Path(os.environ[OUT]).parent
    checkpoints = folder / "checkpoints"
    for number in range(rounds):
        for name in turned(contestants, number):
            steps.await_turn(checkpoints, every, is_ours=name == names.HOLDFAST)
            idle = [steps.timed(lambda: ABSENT)[0] for _ in range(IDLE_STEPS)]
            started_ns = time.monotonic_ns()
            if name == names.HOLDFAST:
                busy = steps.in_flight(watch_checkpoints(checkpoints))
            else:
                place = shared_place(folder)
                rest = ways[name].begin(tensors, place)
                busy = steps.in_flight(watch(rest))
                dist.barrier()
                savers.remove(place)
            took_s = (time.monotonic_ns() - started_ns) / 1e9
            if dist.get_rank() == 0:
                tell(contestant=name, kind=kind, idle_s=idle, busy_s=busy, write_s=took_s)
            for _ in range(SETTLING_STEPS):
                steps.timed(lambda: ABSENT)
    tell(done=True)


@dataclass
class Steps:
    """The training's steps, one after the other."""

    loop: Iterator[int]
    work: Callable[[], None]
    step: int = 0

    def timed(self, look: Callable[[], float]) -> tuple[float, float]:
        """One of all ranks: how long it took, and how far the write is for the slowest of them."""
        self.step = next(self.loop)
        started = time.perf_counter_ns()
        self.work()
        seen = torch.tensor([look()])
        dist.all_reduce(seen, dist.ReduceOp.MIN)
        return (time.perf_counter_ns() - started) / 1e9, float(seen.item())

    def in_flight(self, look: Callable[[], float]) -> list[float]:
        """Times of those that were made wholly while the write ran."""
        busy, before = [], ABSENT
        end_s = time.monotonic() + WRITE_LIMIT_S
        while before != OVER:
            took_s, after = self.timed(look)
            if before == after == RUNNING:
                busy.append(took_s)
            if time.monotonic() > end_s:
                raise SystemExit("a write never ended")
            before = after
        return busy

    def await_turn(self, checkpoints: Path, every: int, is_ours: bool) -> None:
        """Go on until nothing is in flight, and Holdfast's next write (it comes every so many
        steps) is due soon, for its own turn, or far away."""
        end_s = time.monotonic() + WRITE_LIMIT_S
        while True:
            quiet = self.timed(lambda: OVER if is_quiet(checkpoints) else RUNNING)[1] == OVER
            left = every - self.step % every
            is_far = left > ROOM_STEPS
            if quiet and (IDLE_STEPS < left <= 2 * IDLE_STEPS if is_ours else is_far):
                return
            if time.monotonic() > end_s:
                raise SystemExit("nobody's turn came")


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


def is_quiet(checkpoints: Path) -> bool:
    """Whether every checkpoint that was begun is sealed."""
    sealed = len(list(checkpoints.glob("step-*/manifest.json")))
    return sealed == len(list(checkpoints.glob("step-*")))


def watch_checkpoints(checkpoints: Path) -> Callable[[], float]:
    """How far the next checkpoint is."""
    before = len(list(checkpoints.glob("step-*")))

    def look() -> float:
        if len(list(checkpoints.glob("step-*"))) == before:
            return ABSENT
        return OVER if is_quiet(checkpoints) else RUNNING

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
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5].split(";"))
