"""Waiting for what was started with `async_op=True`: communicating like any other, in its group."""

from __future__ import annotations

import threading
from typing import Any

from holdfast.group_slots import NO_SLOT
from holdfast.guard import Guard
from holdfast.page import Phase
from holdfast.patches.grouped import Begin, Begun, Groups, ending, grouped
from holdfast.recorder import Recorder


def install(torch: Any, recorder: Recorder, guard: Guard, groups: Groups | None = None) -> None:
    """Hook the wait of torch's own work handles."""
    work = getattr(torch.distributed, "Work", None)
    if work is None:
        return
    groups = groups or Groups.of(recorder, torch)
    work.wait = grouped(
        work.wait,
        torch.compiler.is_compiling,
        guard,
        awaiting(groups),
        ending(groups, counted=False, starts=False),
    )


def awaiting(groups: Groups) -> Begin:
    """A handle's wait begins; one that nobody saw start is of no group."""
    recorder, underway = groups.recorder, groups.underway
    own_thread, communicating = threading.get_ident, Phase.COMMUNICATING

    def begin(args: tuple[Any, ...], _: dict[str, Any]) -> Begun | None:
        if recorder.phase is communicating and underway.is_inside:
            return None
        if own_thread() != recorder.thread and groups.is_elsewhere():
            return None
        underway.is_inside = True
        previous = recorder.enter(communicating)
        return previous, underway.await_(id(args[0]), args[0]) if args else NO_SLOT

    return begin
