"""Threads beside a loop. Where a machine has none left (`pids.max`, `ulimit -u`), what a thread was
for has to wait; whoever asked for it goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from holdfast_sidecar.config.settings import BadInput

PATIENCE_S = 3.0
"""What an earlier job of this machine leaves behind is gone by then."""

AGAIN_S = 0.1

NONE_LEFT = "no thread can be started"

MORE_THREADS = "raise pids.max of its control group (docker --pids-limit), or `ulimit -u`"


def start_thread(
    work: Callable[..., object], name: str, args: tuple[Any, ...] = ()
) -> threading.Thread | None:
    """A daemon thread at work; None where none can be started now: ask again later."""
    thread = threading.Thread(target=work, name=name, args=args, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


def start_patiently(
    work: Callable[..., object], name: str, patience_s: float | None = None
) -> threading.Thread | None:
    """The same for what nobody asks for again: tried for a while (PATIENCE_S)."""
    end_s = time.monotonic() + (PATIENCE_S if patience_s is None else patience_s)
    while True:
        thread = start_thread(work, name)
        if thread is not None or time.monotonic() >= end_s:
            return thread
        time.sleep(AGAIN_S)


def start_needed_thread(work: Callable[..., object], name: str) -> threading.Thread:
    """The same for what nothing goes on without. Raises BadInput."""
    thread = start_patiently(work, name)
    if thread is None:
        raise BadInput(f"{NONE_LEFT} ({name}): {MORE_THREADS}")
    return thread
