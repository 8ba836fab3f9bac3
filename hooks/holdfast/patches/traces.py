"""Traces on request: joins what the page asks for with torch's profiler."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.contract import environment
from holdfast.contract.foreign_launch import find_seat
from holdfast.contract.page import OrderKind
from holdfast.guard import Guard
from holdfast.rank import process
from holdfast.recording.recorder import NOT_HEARD, Recorder
from holdfast.recording.step_trace import StepTrace
from holdfast.recording.torch_profiler import KnownProfilers, TorchProfiler

EXIT_WAIT_S = 10.0
"""A script that ends while its trace is written waits so long for it, and no longer: the file
system may be what hangs."""


def install(torch: Any, recorder: Recorder, guard: Guard) -> None:
    """Listen for orders to trace, where there is a folder for what comes of them."""
    folder, seat = os.environ.get(environment.EVIDENCE_DIR), find_seat(os.environ)
    if not folder or seat is None:
        return
    others = KnownProfilers(torch.autograd.profiler.profile, guard)
    trace = StepTrace(
        recording=recorder,
        rank=seat.rank,
        evidence=Path(folder),
        open_profiler=lambda: TorchProfiler(torch, guard, others),
        clock_ns=time.monotonic_ns,
        write_later=lambda task: _beside(guard.wrap("trace file", task, None)),
    )
    listen(recorder, trace, guard)


def listen(recorder: Recorder, trace: StepTrace, guard: Guard) -> None:
    """Have the recorder tell the trace of steps, as long as an order is new or under way."""
    follow = guard.wrap("trace", trace.follow, None)
    give_up = guard.wrap("end of a trace", trace.give_up, None)

    def on_trace(step: int) -> int:
        if process.current() is not recorder:
            return NOT_HEARD
        goes_on = follow(recorder.order(OrderKind.TRACE), step, recorder.newest_record())
        if goes_on is None:
            give_up()
        return NOT_HEARD if goes_on else recorder.heard(OrderKind.TRACE)

    recorder.on_trace = on_trace


def _beside(task: Callable[[], None]) -> None:
    thread = threading.Thread(target=task, name="holdfast-trace", daemon=True)
    thread.start()
    atexit.register(thread.join, EXIT_WAIT_S)
