"""Rank 1 dies in every attempt but the last; each that follows loads its state in both ways."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

import holdfast
from bench.checkpoint import names, state
from bench.checkpoint.telling import OUT, tell
from holdfast.contract.page import Word
from holdfast.rank import process

ATTEMPT = int(os.environ["HOLDFAST_ATTEMPT"])


def main(megabytes: int, kills: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model, optimizer = state.make(megabytes)
    tensors = state.tensors(model, optimizer)
    place = Path(os.environ[OUT]).parent / "dcp"
    job = holdfast.attach(model=model, optimizer=optimizer)
    dist.barrier()
    started = time.perf_counter_ns()
    start = job.resume()
    spent_s = (time.perf_counter_ns() - started) / 1e9
    if ATTEMPT == 0:
        dcp.save(dict(tensors), checkpoint_id=str(place))
    else:
        tell(contestant=names.HOLDFAST, load_s=spent_s, resumed=start)
        load(tensors, place)
    recorder = process.current()
    assert recorder is not None
    for step in job.steps(range(10**9)):
        if kills == ATTEMPT:
            break
        optimizer.step()
        dist.barrier()
        has_snapshots = recorder.word(Word.SNAPSHOT_EXISTING) > max(step - 2, start + 2)
        if dist.get_rank() == 1 and has_snapshots:
            os.kill(os.getpid(), signal.SIGKILL)
    tell(done=True)


def load(tensors: dict[str, torch.Tensor], place: Path) -> None:
    """The same state from disk, and once more from the page cache."""
    for is_cold in (True, False):
        if is_cold and dist.get_rank() == 0:
            forget(place)
        dist.barrier()
        started = time.perf_counter_ns()
        dcp.load(dict(tensors), checkpoint_id=str(place))
        spent_s = (time.perf_counter_ns() - started) / 1e9
        tell(contestant=names.DCP_SYNC, load_s=spent_s, is_cold=is_cold)


def forget(place: Path) -> None:
    """Have the kernel drop what it cached of these files; what is dirty is written first."""
    for path in place.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
