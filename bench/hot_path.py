"""What the hooks themselves cost per step: microseconds in a tight loop, system calls by strace.

The loop runs the real hooks around functions that do nothing; what the same loop costs without
hooks is taken off.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.recording.recorder import Recorder

BLOCK = 100
BLOCKS = 400
WARM_UP_BLOCKS = 20
TRACED_STEPS = 2000
WARM_UP_STEPS = 10_000
"""Until caches of Python and the allocator have come to rest."""

Step = Callable[[], None]


class Batches:
    """Stands for the iterator of a DataLoader, and for anything that can be held weakly."""

    batch: object = None

    def __next__(self) -> object:
        return self.batch


def nothing(*_: Any, **__: Any) -> None:
    """Stands for what the hooks wrap."""


def scene() -> SimpleNamespace:
    """As much of torch as the patches touch: its work left out, its own questions left in."""
    import torch

    class Iterator(Batches):
        def __next__(self) -> object:
            return self.batch

    ids = torch.zeros(8, 512, dtype=torch.int64)
    Batches.batch = {"input_ids": ids, "attention_mask": ids, "labels": ids}
    norm = torch.tensor(1.5)

    def clip_grad_norm_(*_: Any) -> Any:
        return norm

    loaders = SimpleNamespace(dataloader=SimpleNamespace(_BaseDataLoaderIter=Iterator))
    clipping = SimpleNamespace(clip_grad_norm_=clip_grad_norm_)
    return SimpleNamespace(
        Tensor=torch.Tensor,
        autograd=SimpleNamespace(backward=nothing, Variable=torch.autograd.Variable),
        compiler=torch.compiler,
        distributed=SimpleNamespace(
            is_available=lambda: True,
            all_reduce=nothing,
            distributed_c10d=SimpleNamespace(all_reduce=nothing),
        ),
        cuda=torch.cuda,
        is_grad_enabled=torch.is_grad_enabled,
        loss=torch.tensor(0.5),
        nn=SimpleNamespace(
            utils=SimpleNamespace(clip_grad_norm_=clip_grad_norm_, clip_grad=clipping)
        ),
        empty=torch.empty,
        no_grad=torch.no_grad,
        ones=torch.ones,
        utils=SimpleNamespace(data=loaders),
        version=torch.version,
    )


def bare_step(torch: SimpleNamespace) -> Step:
    """One step without hooks."""
    batches, loss = Batches(), torch.loss
    backward, clip = torch.autograd.backward, torch.nn.utils.clip_grad_norm_

    def step() -> None:
        next(batches)
        backward(loss)
        clip(loss)

    return step


def hooked_step(torch: SimpleNamespace, recorder: Recorder) -> Step:
    """One step with all hooks: data and the work in it, the backward pass and its loss, clipping
    and its norm, the optimizer, a collection of young garbage, and the record. What the backward
    pass waits for comes on top where there are peers, and so does each collective of a script.
    """
    from torch.optim import optimizer as optimizers

    from holdfast.contract.page import Word
    from holdfast.guard import Guard
    from holdfast.patches import backward, collector, data, gradients, optimizer

    guard = Guard(lambda: recorder.count(Word.HOOK_ERRORS))
    for patch in (optimizer, backward, gradients, data, collector):
        patch.install(torch, recorder, guard)
    collected, youngest = gc.callbacks.pop(), {"generation": 0}
    batches = torch.utils.data.dataloader._BaseDataLoaderIter()
    loss, hooked_backward = torch.loss, torch.autograd.backward
    clip = torch.nn.utils.clip_grad_norm_
    # The optimizer's hooks are global: a process that measures twice would have them twice.
    *_, before = optimizers._global_optimizer_pre_hooks.values()
    *_, after = optimizers._global_optimizer_post_hooks.values()
    stepped = some_optimizer()

    def step() -> None:
        next(batches)
        hooked_backward(loss)
        collected("start", youngest)
        collected("stop", youngest)
        clip(loss)
        before(stepped, (), {})
        after(stepped, (), {})

    step()
    assert (recorder.word(Word.STEP), recorder.word(Word.HOOK_ERRORS)) == (1, 0)
    assert recorder.word(Word.GRADIENT_STEP) == 1
    return step


def some_optimizer() -> Any:
    """With as many parameters as a layer of a transformer has, whose gradients are there."""
    import torch

    weights = [torch.nn.Parameter(torch.zeros(4)) for _ in range(12)]
    for weight in weights:
        weight.grad = torch.zeros(4)
    return torch.optim.SGD(weights, lr=0.1)


def marked_pass(recorder: Recorder) -> Step:
    """A real backward pass, though of almost nothing, whose wait is told from its work."""
    import torch

    from holdfast.contract.page import Phase, Word
    from holdfast.guard import Guard
    from holdfast.patches.backward_wait import BackwardWait

    guard = Guard(lambda: recorder.count(Word.HOOK_ERRORS))
    wait = BackwardWait(torch, recorder, guard)
    arm, leave = guard.wrap("arm", wait.arm, None), guard.wrap("leave", wait.leave, None)
    leaf = torch.ones(1, requires_grad=True)

    def marked() -> None:
        loss = leaf * 1
        previous = recorder.enter(Phase.BACKWARD)
        arm((loss,), {})
        loss.backward()
        leave(previous)

    marked()
    assert (recorder.word(Word.HOOK_ERRORS), recorder.backwards_unseen) == (0, 0)
    return marked


def both(*steps: Step) -> Step:
    """One after the other."""

    def step() -> None:
        for part in steps:
            part()

    return step


def backward_wait_us(recorder: Recorder, blocks: int) -> float:
    """What telling the wait from the work adds to a real backward pass, all of it: medians of
    blocks in turns, with the mark and without."""
    import torch

    from holdfast.contract.page import Phase

    marked, leaf = marked_pass(recorder), torch.ones(1, requires_grad=True)

    def entered() -> None:
        previous = recorder.enter(Phase.BACKWARD)
        (leaf * 1).backward()
        recorder.enter(previous)

    pairs = [(_block_us(marked), _block_us(entered)) for _ in range(blocks)]
    return statistics.median(with_ - without for with_, without in pairs)


def collective(torch: SimpleNamespace, recorder: Recorder) -> Step:
    """One collective that the script calls itself, with its hook."""
    from holdfast.contract.page import Word
    from holdfast.guard import Guard
    from holdfast.patches import collectives

    collectives.install(torch, recorder, Guard(lambda: recorder.count(Word.HOOK_ERRORS)))
    all_reduce, tensor = torch.distributed.all_reduce, torch.loss
    all_reduce(tensor)
    assert (recorder.word(Word.COLLECTIVES_LEFT), recorder.word(Word.HOOK_ERRORS)) == (1, 0)
    return lambda: all_reduce(tensor)


def new_recorder(path: Path) -> Recorder:
    """A recorder on a page in this file."""
    import mmap

    from holdfast.contract.page import PAGE_SIZE
    from holdfast.recording.recorder import Recorder

    with path.open("w+b") as file:
        os.posix_fallocate(file.fileno(), 0, PAGE_SIZE)
        return Recorder(mmap.mmap(file.fileno(), PAGE_SIZE), attempt=0)


def wrapped(step: Step, recorder: Recorder) -> Iterator[Step]:
    """The same step for ever, each inside the loop of the three lines."""
    import torch

    import holdfast
    from holdfast.rank import process

    process.hold(recorder)
    job = holdfast.attach(model=torch.nn.Linear(1, 1))
    job.resume()
    return (step for _ in job.steps(range(sys.maxsize)))


def _block_us(step: Step) -> float:
    begin = time.thread_time_ns()
    for _ in range(BLOCK):
        step()
    return (time.thread_time_ns() - begin) / BLOCK / 1000


@contextlib.contextmanager
def sampled(every: int) -> Iterator[None]:
    """Have the parts of every so manyth step measured: these steps alone are so short that it
    would hardly ever be done."""
    from holdfast.recording import sampling

    decide = sampling.sampled_every
    sampling.sampled_every = lambda *_: every
    try:
        yield
    finally:
        sampling.sampled_every = decide


def block_means_us(steps: Iterator[Step], blocks: int = BLOCKS) -> list[float]:
    """Mean cost of a step in each block, microseconds of this thread: not what others took."""
    means = []
    for index in range(WARM_UP_BLOCKS + blocks):
        begin = time.thread_time_ns()
        for step in islice(steps, BLOCK):
            step()
        if index >= WARM_UP_BLOCKS:
            means.append((time.thread_time_ns() - begin) / BLOCK / 1000)
    return means


def measure(blocks: int = BLOCKS) -> dict[str, float]:
    """The hooks' own cost per step, microseconds: of zero lines, and with the three lines' loop;
    what a step costs whose parts are not measured; what each collective that a script calls itself
    adds, and what a backward pass adds that may wait for others.

    Percentiles are over the means of 100-step blocks, as the goal is put. `sampled_p99_us` is the
    dearer of the first two, all of whose steps are measured, with one backward pass that waits;
    `p99_us` is that of steps as short as these when nothing is set: few of them are measured.
    """
    from holdfast.contract.page import Word
    from holdfast.rank import process

    with _shared_memory() as folder:
        torch, recorder = scene(), new_recorder(folder / "page")
        bare = min(block_means_us(repeat(bare_step(torch)), blocks))
        step = hooked_step(torch, recorder)
        with sampled(every=1):
            zero_lines = block_means_us(repeat(step), blocks)
            three_lines = block_means_us(wrapped(step, recorder), blocks)
        by_default = block_means_us(wrapped(step, recorder), blocks)
        every = recorder.word(Word.ANATOMY_EVERY)
        process.disown()
        torch, recorder = scene(), new_recorder(folder / "page")
        with sampled(every=1):
            wait_us = backward_wait_us(recorder, blocks)
        step = hooked_step(torch, recorder)
        with sampled(every=1 << 30):
            passed_over = block_means_us(repeat(step), blocks)
        collectives = block_means_us(repeat(collective(torch, recorder)), blocks // 4)
    summary = {
        **_summary("zero_lines", [mean - bare for mean in zero_lines]),
        **_summary("three_lines", [mean - bare for mean in three_lines]),
        **_summary("passed_over", [mean - bare for mean in passed_over]),
        **_summary("by_default", [mean - bare for mean in by_default]),
    }
    dearer = max(summary["zero_lines_p99_us"], summary["three_lines_p99_us"])
    return {
        **summary,
        "backward_wait_us": wait_us,
        "sampled_p99_us": dearer + wait_us,
        "p99_us": summary["by_default_p99_us"] + wait_us / every,
        "collective_us": statistics.median(collectives),
        "blocks": float(blocks),
    }


def _summary(name: str, means_us: list[float]) -> dict[str, float]:
    ordered = sorted(means_us)
    return {
        f"{name}_min_us": ordered[0],
        f"{name}_median_us": statistics.median(ordered),
        f"{name}_p99_us": ordered[int(0.99 * (len(ordered) - 1))],
        f"{name}_max_us": ordered[-1],
    }


def measure_growth(steps: int) -> dict[str, int]:
    """What this process holds more of after so many hooked steps than before them."""
    with _shared_memory() as folder:
        recorder = new_recorder(folder / "page")
        loop = _all_of_it(recorder)
        _run(islice(loop, WARM_UP_STEPS))
        blocks, resident = _held()
        _run(islice(loop, steps))
        blocks_after, resident_after = _held()
    return {
        "steps": steps,
        "blocks": blocks_after - blocks,
        "resident_bytes": resident_after - resident,
    }


def _all_of_it(recorder: Recorder) -> Iterator[Step]:
    passes = marked_pass(recorder)
    return wrapped(both(hooked_step(scene(), recorder), passes), recorder)


def _run(steps: Iterable[Step]) -> None:
    for step in steps:
        step()


def _held() -> tuple[int, int]:
    """Blocks of memory that Python has handed out, and bytes of it that are resident."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return sys.getallocatedblocks(), pages * os.sysconf("SC_PAGE_SIZE")


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
        recorder = new_recorder(folder / "page")
        loop = _all_of_it(recorder)
        for step in islice(loop, BLOCK):
            step()
        os.getppid()
        for step in islice(loop, steps):
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
        print({**measure(), "system_calls": count_system_calls()})
