"""Waiting for a collective started with `async_op=True`: communicating like any other."""

from __future__ import annotations

from typing import Any

from holdfast.guard import Guard
from holdfast.page import Phase
from holdfast.patches.timed import entering, leaving, timed
from holdfast.recorder import Recorder


def install(torch: Any, recorder: Recorder, guard: Guard) -> None:
    """Hook the wait of torch's own work handles."""
    work = getattr(torch.distributed, "Work", None)
    if work is None:
        return
    work.wait = timed(
        work.wait,
        torch.compiler.is_compiling,
        guard,
        entering(recorder, Phase.COMMUNICATING),
        leaving(recorder),
    )
