"""What the hooks themselves cost per step: nanoseconds in a tight loop, and system calls by strace.

The loop runs the real hooks around functions that do nothing; what the same loop costs without
hooks is taken off.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

BLOCK = 100
BLOCKS = 400
WARM_UP_BLOCKS = 20
TRACED_STEPS = 2000

Step = Callable[[], None]


class Batches:
    """Stands for the iterator of a DataLoader, and for anything that can be held weakly."""

    def __next__(self) -> None:
        return None


def nothing(*_: Any, **__: Any) -> None:
    """Stands for what the hooks wrap."""


def scene() -> SimpleNamespace:
    """As much of torch as the patches touch: its work left out, its own questions left in."""
    import torch

    distributed = SimpleNamespace(is_available=lambda: True, all_reduce=nothing)
    distributed.distributed_c10d = SimpleNamespace(all_reduce=nothing)

    class Iterator(Batches):
        def __next__(self) -> None:
            return None

    loaders = SimpleNamespace(dataloader=SimpleNamespace(_BaseDataLoaderIter=Iterator))
    return SimpleNamespace(
        Tensor=torch.Tensor,
        autograd=SimpleNamespace(backward=nothing),
        compiler=torch.compiler,
        cuda=torch.cuda,
        distributed=distributed,
        is_grad_enabled=torch.is_grad_enabled,
        loss=torch.tensor(0.5),
        utils=SimpleNamespace(data=loaders),
    )


def bare_step(torch: SimpleNamespace) -> Step:
    """One step without hooks."""
    batches, loss = Batches(), torch.loss
    backward = torch.autograd.backward

    def step() -> None:
        next(batches)
        backward(loss)

    return step


def hooked_step(torch: SimpleNamespace, page_path: Path) -> Step:
    """One step with the hooks of the data, the backward pass, the optimizer and the record."""
    import mmap

    from torch.optim import optimizer as optimizers

    from holdfast.guard import Guard
    from holdfast.page import PAGE_SIZE, Word
    from holdfast.patches import backward, data, optimizer
    from holdfast.recorder import Recorder

    with page_path.open("w+b") as file:
        os.posix_fallocate(file.fileno(), 0, PAGE_SIZE)
        recorder = Recorder(mmap.mmap(file.fileno(), PAGE_SIZE), attempt=0)
    guard = Guard(lambda: recorder.count(Word.HOOK_ERRORS))
    for install in (optimizer.install, backward.install, data.install):
        install(torch, recorder, guard)
    batches = torch.utils.data.dataloader._BaseDataLoaderIter()
    loss, hooked_backward = torch.loss, torch.autograd.backward
    # The optimizer's hooks are global: a process that measures twice would have them twice.
    *_, before = optimizers._global_optimizer_pre_hooks.values()
    *_, after = optimizers._global_optimizer_post_hooks.values()
    stepped = Batches()

    def step() -> None:
        next(batches)
        hooked_backward(loss)
        before(stepped, (), {})
        after(stepped, (), {})

    step()
    assert (recorder.word(Word.STEP), recorder.word(Word.HOOK_ERRORS)) == (1, 0)
    return step


def block_means_us(step: Step, blocks: int = BLOCKS) -> list[float]:
    """Mean cost of a step in each block, microseconds of this thread: not what others took."""
    means = []
    for index in range(WARM_UP_BLOCKS + blocks):
        begin = time.thread_time_ns()
        for _ in range(BLOCK):
            step()
        if index >= WARM_UP_BLOCKS:
            means.append((time.thread_time_ns() - begin) / BLOCK / 1000)
    return means


def measure(blocks: int = BLOCKS) -> dict[str, float]:
    """The hooks' own cost per step: percentiles of the means of 100-step blocks, microseconds."""
    with _shared_memory() as folder:
        torch = scene()
        bare = min(block_means_us(bare_step(torch), blocks))
        own = sorted(
            us - bare for us in block_means_us(hooked_step(torch, folder / "page"), blocks)
        )
    return {
        "min_us": own[0],
        "median_us": statistics.median(own),
        "p99_us": own[int(0.99 * (len(own) - 1))],
        "max_us": own[-1],
        "blocks": float(len(own)),
    }


def count_system_calls(steps: int = TRACED_STEPS) -> int | None:
    """System calls that this many hooked steps make in all; None without strace."""
    strace = shutil.which("strace")
    if strace is None:
        return None
    with _shared_memory() as folder:
        trace = folder / "trace"
        subprocess.run(
            [strace, "-f", "-o", str(trace), sys.executable, __file__, "--steps", str(steps)],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        calls = [line.split(maxsplit=1)[1] for line in trace.read_text().splitlines()]
    begin, end = (index for index, call in enumerate(calls) if call.startswith("getppid("))
    return end - begin - 1


def _run_steps(steps: int) -> None:
    """Run hooked steps between two calls of getppid, which nothing else here makes."""
    with _shared_memory() as folder:
        step = hooked_step(scene(), folder / "page")
        for _ in range(BLOCK):
            step()
        os.getppid()
        for _ in range(steps):
            step()
        os.getppid()


class _shared_memory(tempfile.TemporaryDirectory[str]):  # noqa: N801 - used like a function
    """A folder where pages really lie, removed afterwards."""

    def __init__(self) -> None:
        super().__init__(prefix="holdfast-bench-", dir="/dev/shm")

    def __enter__(self) -> Path:  # type: ignore[override]
        return Path(super().__enter__())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.steps:
        _run_steps(arguments.steps)
    else:
        print(measure(), {"system_calls": count_system_calls()})
