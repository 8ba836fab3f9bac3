"""One loop in which all ways to save take turns; Holdfast's share is the pause between two steps.

The state changes at every step, and all ranks begin at the same moment.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist

import holdfast
from bench.checkpoint import names, savers, state
from bench.checkpoint.telling import OUT, tell
from holdfast.contract.page import Word
from holdfast.rank import process

WARM_UP_LIMIT = 600
"""Steps until slots must be there: 600 of them take a minute at least."""


def main(megabytes: int, rounds: int, contestants: list[str]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model, optimizer = state.make(megabytes)
    tensors = state.tensors(model, optimizer)
    job = holdfast.attach(model=model, optimizer=optimizer)
    job.resume()
    recorder = process.current()
    assert recorder is not None
    tell(state_bytes=state.size_bytes(tensors), ranks=dist.get_world_size())
    folder = (
        Path(tempfile.mkdtemp(dir=Path(os.environ[OUT]).parent)) if dist.get_rank() == 0 else ""
    )
    shared = [str(folder)]
    dist.broadcast_object_list(shared)
    ways = {name: savers.make(name) for name in contestants}
    turns = order_of_turns(contestants, rounds)
    turn, taken, ended_ns, is_ready = names.HOLDFAST, 0, 0, False
    for step in job.steps(range(10**9)):
        paused_s = (time.perf_counter_ns() - ended_ns) / 1e9
        now_taken = recorder.word(Word.SNAPSHOTS_TAKEN)
        if ended_ns and turn == names.HOLDFAST and now_taken > taken:
            tell(contestant=names.HOLDFAST, blocked_s=paused_s, is_first=taken == 0)
        elif ended_ns and not is_ready:
            tell(contestant=names.HOLDFAST, without_slots_s=paused_s)
        taken = now_taken
        # Ranks have to leave the warm-up together, and one may see its slots a step earlier.
        is_ready = is_ready or all_have(taken >= 2)
        if not is_ready and step > WARM_UP_LIMIT:
            raise SystemExit("no snapshot was taken")
        turn = next(turns, "") if is_ready else names.HOLDFAST
        if not turn:
            break
        optimizer.step()
        dist.barrier()
        if turn != names.HOLDFAST:
            save(ways[turn], turn, tensors, Path(shared[0], f"{step}"))
        ended_ns = time.perf_counter_ns()
    tell(done=True)


def order_of_turns(contestants: list[str], rounds: int) -> Iterator[str]:
    """Everyone once a round, another one first each time."""
    field = [names.HOLDFAST, *contestants]
    for number in range(rounds):
        start = number % len(field)
        yield from [*field[start:], *field[:start]]


def save(way: savers.Saver, name: str, tensors: savers.State, place: Path) -> None:
    """One save of a contestant, and the end of what it left behind the loop."""
    started = time.perf_counter_ns()
    rest = way.begin(tensors, place)
    blocked_s = (time.perf_counter_ns() - started) / 1e9
    rest.result()
    tell(
        contestant=name,
        blocked_s=blocked_s,
        durable_s=(time.perf_counter_ns() - started) / 1e9,
        is_first=name not in SEEN,
    )
    SEEN.add(name)
    dist.barrier()
    savers.remove(place)


SEEN: set[str] = set()


def all_have(mine: bool) -> bool:
    """Whether this holds on every rank."""
    said = torch.tensor([float(mine)])
    dist.all_reduce(said, dist.ReduceOp.MIN)
    return bool(said.item())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(";") if sys.argv[3] else [])
