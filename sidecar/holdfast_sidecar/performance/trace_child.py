"""Sums up one trace file on stdout: a child of the sidecar, since a trace may be large.

`python -m holdfast_sidecar.performance.trace_child FILE` answers JSON: the operators, or an error.
"""

from __future__ import annotations

import gzip
import heapq
import json
import os
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast_sidecar.records.checkpoint import OperatorTime

# What the operators of a chrome trace took, each without what it called. Pure.

ON_HOST = frozenset({"cpu_op", "user_annotation"})
ON_DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
DEVICE_PREFIX = "on the device: "

STEP = "ProfilerStep#"
NO_OPERATOR = "outside of any operator (Python, waiting)"
"""What a step's own mark took, less all that was called in it: Python, sleep, waiting for data."""

MOST_TOLD = 24
"""Operators a rank: they are told in a heartbeat, and more are not read."""

LONGEST_NAME = 80


@dataclass
class _Open:
    """An event that others may still begin in."""

    name: str
    ends: float
    self_us: float


def sum_up(events: Iterable[Mapping[str, Any]], steps: int) -> list[OperatorTime]:
    """The dearest operators, means over the steps; those of a device count by themselves."""
    spent: dict[str, float] = defaultdict(float)
    calls: dict[str, int] = defaultdict(int)
    for name, self_us in _self_times(events):
        spent[name] += self_us
        calls[name] += 1
    dearest = heapq.nlargest(MOST_TOLD, spent, key=lambda name: spent[name])
    return [
        OperatorTime(name, round(spent[name] / steps, 1), round(calls[name] / steps, 2))
        for name in dearest
    ]


def count_steps(events: Iterable[Mapping[str, Any]]) -> int:
    """How many steps the trace says that it has; one, where it says nothing."""
    marks = (event for event in events if _is_whole(event) and event.get("cat") in ON_HOST)
    return max(1, sum(str(event["name"]).startswith(STEP) for event in marks))


def _self_times(events: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, float]]:
    lines: dict[tuple[object, object], list[Mapping[str, Any]]] = defaultdict(list)
    for event in events:
        if not _is_whole(event):
            continue
        if event.get("cat") in ON_DEVICE:
            yield _cut(f"{DEVICE_PREFIX}{event['name']}"), float(event["dur"])
        elif event.get("cat") in ON_HOST:
            lines[event.get("pid"), event.get("tid")].append(event)
    for line in lines.values():
        yield from _of_line(line)


def _of_line(events: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, float]]:
    """Of one thread: what lies within another event is not its own time."""
    open_ones: list[_Open] = []
    for event in sorted(events, key=lambda event: (float(event["ts"]), -float(event["dur"]))):
        began, took = float(event["ts"]), float(event["dur"])
        while open_ones and open_ones[-1].ends <= began:
            closed = open_ones.pop()
            yield closed.name, max(closed.self_us, 0.0)
        if open_ones:
            open_ones[-1].self_us -= min(took, open_ones[-1].ends - began)
        open_ones.append(_Open(_name(str(event["name"])), began + took, took))
    for closed in reversed(open_ones):
        yield closed.name, max(closed.self_us, 0.0)


def _is_whole(event: Mapping[str, Any]) -> bool:
    return event.get("ph") == "X" and "dur" in event and "name" in event and "ts" in event


def _name(name: str) -> str:
    return NO_OPERATOR if name.startswith(STEP) else _cut(name)


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


MOST_BYTES = 256 << 20
"""Unpacked. Parsing takes ten times as much memory; a step of a large model is a tenth of it."""

NICE = 19
"""The ranks need the cores more."""


def main() -> None:
    """Answer for the file that is named."""
    os.nice(NICE)
    print(answer(Path(sys.argv[1])))


def answer(path: Path) -> str:
    """What is to be told of the file."""
    try:
        with gzip.open(path) as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            return json.dumps({"error": f"more than {MOST_BYTES >> 20} MiB: not summed up"})
        events = json.loads(text)["traceEvents"]
        return json.dumps({"operators": [vars(one) for one in sum_up(events, count_steps(events))]})
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError) as error:
        return json.dumps({"error": " ".join(f"{type(error).__name__}: {error}".split())})


if __name__ == "__main__":
    main()
