"""What the ranks' own lines say: when new processes came and when all stepped again. Pure."""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Event:
    """One line of train.py. Times are CLOCK_MONOTONIC nanoseconds."""

    at_ns: int
    name: str
    rank: int
    world_size: int
    pid: int
    attempt: int
    step: int


def parse_event(line: str) -> Event | None:
    """Parse a line; None when it is torn (the process was killed while writing it)."""
    fields = line.split()
    if not line.endswith("\n") or len(fields) != 7:
        return None
    at_ns, name, *numbers = fields
    rank, world_size, pid, attempt, step = (int(number) for number in numbers)
    return Event(int(at_ns), name, rank, world_size, pid, attempt, step)


def steady(events: Iterable[Event], world_size: int, step: int) -> bool:
    """Whether every rank has finished this step."""
    reached = {e.rank for e in events if e.name == "step" and e.step >= step}
    return len(reached) >= world_size


def newest_pid(events: Iterable[Event], rank: int) -> int:
    """Process of this rank that wrote last."""
    return max((e for e in events if e.rank == rank), key=lambda event: event.at_ns).pid


@dataclass(frozen=True)
class Recovery:
    """Seconds after the fault; None when it did not happen."""

    first_new_process_s: float | None
    loaded_s: float | None
    every_rank_stepping_s: float | None
    step_resumed: int | None


def recovery(events: Sequence[Event], fault_ns: int, world_sizes: Sequence[int]) -> Recovery:
    """How the job came back after a fault, by the lines of processes first seen after it.

    It is back once every rank of one world (of one of `world_sizes`, all of one process group, so
    that ranks of different attempts are not counted together) has finished a step.
    """
    old = {e.pid for e in events if e.at_ns < fault_ns}
    new = [e for e in events if e.pid not in old]
    started = [e.at_ns for e in new if e.name == "started"]
    back = _back(new, world_sizes)
    if back is None:
        return Recovery(_after(min(started, default=None), fault_ns), None, None, None)
    loaded = [e for e in new if e.name == "loaded" and e.pid in {b.pid for b in back}]
    return Recovery(
        first_new_process_s=_after(min(started, default=None), fault_ns),
        loaded_s=_after(max(e.at_ns for e in loaded), fault_ns),
        every_rank_stepping_s=_after(max(b.at_ns for b in back), fault_ns),
        step_resumed=min(b.step for b in back) - 1,
    )


def _back(new: Sequence[Event], world_sizes: Sequence[int]) -> list[Event] | None:
    """First step of each rank in the first world that is complete.

    DDP's gradients are summed over all ranks, so a first step that ends is proof of a whole group:
    it is enough that the newest process of every rank has stepped.
    """
    for world_size in world_sizes:
        first: dict[int, Event] = {}
        for event in sorted(new, key=lambda e: e.at_ns):
            if event.name == "step" and event.world_size == world_size:
                known = first.get(event.rank)
                if known is None or known.pid != event.pid:
                    first[event.rank] = event
                if len(first) == world_size:
                    return list(first.values())
    return None


def step_seconds(events: Iterable[Event], skip: int = 0) -> float | None:
    """Median time between one rank's consecutive steps, the first `skip` left out."""
    times: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        if event.name == "step":
            times[event.pid].append(event)
    gaps = [
        (later.at_ns - earlier.at_ns) / 1e9
        for steps in times.values()
        for earlier, later in itertools.pairwise(steps)
        if earlier.step > skip and later.step == earlier.step + 1
    ]
    return statistics.median(gaps) if gaps else None


def _after(at_ns: int | None, fault_ns: int) -> float | None:
    return None if at_ns is None else (at_ns - fault_ns) / 1e9
