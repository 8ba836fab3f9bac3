"""A rank without torch whose steps can be traced: its profiler writes one operator into a file.

Given: the directory of its pages, that of its evidence, its rank, the attempt, how long a step is,
and which steps its script profiles by itself (`own`), so that ours may not.
"""

from __future__ import annotations

import gzip
import json
import sys
import threading
import time
from pathlib import Path

from holdfast.contract.identity import read_identity
from holdfast.contract.page import Identity, Phase
from holdfast.guard import Guard
from holdfast.patches.traces import listen
from holdfast.rank import process
from holdfast.rank.claim import claim
from holdfast.recording.recorder import Recorder
from holdfast.recording.step_trace import StepTrace


class Profiler:
    """What was recorded is how many steps were marked."""

    taken_by = ""

    def __init__(self, is_in_use: bool, busy_us: float) -> None:
        self._is_in_use = is_in_use
        self._busy_us = busy_us
        self._steps: list[int] = []

    def obstacle(self) -> str:
        return "the script's own profiler is active" if self._is_in_use else ""

    def warm_up(self) -> None: ...

    def begin(self) -> None: ...

    def mark(self, step: int) -> None:
        self._steps.append(step)

    def end(self) -> None: ...

    def drop(self) -> None: ...

    def write(self, path: Path) -> int:
        events = [
            {
                "ph": "X",
                "pid": 1,
                "tid": 1,
                "ts": 1e6 * index,
                "cat": cat,
                "name": name,
                "dur": took,
            }
            for index, step in enumerate(self._steps)
            for cat, name, took in (
                ("user_annotation", f"ProfilerStep#{step}", 1e6),
                ("cpu_op", "aten::mm", self._busy_us),
            )
        ]
        return path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))


def main(pages: str, evidence: str, rank: int, attempt: int, step_s: float, own: str) -> None:
    me = read_identity()
    assert me is not None
    now_ns = time.monotonic_ns()
    claimed = claim(
        pages, Identity(me.pid, me.start_ticks, attempt, 1, rank, rank, 2, now_ns, "a", "job")
    )
    assert claimed is not None
    recorder = Recorder(claimed.memory, attempt)
    process.hold(recorder)
    trace = StepTrace(
        recorder,
        rank,
        Path(evidence),
        lambda: Profiler(own == "own", 1e4 * (rank + 1)),
        time.monotonic_ns,
        lambda task: threading.Thread(target=task).start(),
    )
    listen(recorder, trace, Guard(lambda: None))
    for step in range(1, 100_000):
        recorder.enter(Phase.FORWARD)
        # Three times as long on rank 1: on busy cores a sleep takes 10 ms more now and then.
        time.sleep(step_s * (1 + 2 * rank))
        recorder.enter(Phase.COMMUNICATING)
        time.sleep(step_s * (2 - 2 * rank))
        recorder.end_step(step)


if __name__ == "__main__":
    _, pages, evidence, rank, attempt, step_s, own = sys.argv
    main(pages, evidence, int(rank), int(attempt), float(step_s), own)
