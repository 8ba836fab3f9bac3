"""Waiting for what was started with `async_op=True`: communicating like any other, in its group."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from holdfast.contract.page import Phase
from holdfast.guard import Guard
from holdfast.patches.grouped import Begin, Begun, End, Groups, ending
from holdfast.recording.group_slots import NO_SLOT
from holdfast.recording.recorder import Recorder


def install(torch: Any, recorder: Recorder, guard: Guard, groups: Groups | None = None) -> None:
    """Hook the wait of torch's own work handles."""
    work = getattr(torch.distributed, "Work", None)
    if work is None:
        return
    groups = groups or Groups.of(recorder, torch)
    end = ending(groups, counted=False, starts=False)
    work.wait = waited(work.wait, torch.compiler.is_compiling, guard, awaiting(groups), end)


def waited(
    function: Callable[..., Any],
    is_compiling: Callable[[], bool],
    guard: Guard,
    begin: Begin,
    end: End,
) -> Callable[..., Any]:
    """The wait, timed. Its results, errors and name stay its own.

    Backends may be written in Python: for their subclasses of Work, torch's C++ looks for an
    override of `wait` and finds this function. pybind11 goes on to the base only when it is called
    out of a function whose code is named like the method and whose first positional argument is
    the object; from any other it would call this one again, without end.
    """
    guarded_begin, guarded_end = guard.pair("wait", begin, end)

    @functools.wraps(function)
    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return function(self, *args, **kwargs)
        begun = guarded_begin((self,), kwargs)
        if begun is None:
            return function(self, *args, **kwargs)
        try:
            return function(self, *args, **kwargs)
        finally:
            guarded_end(begun, None)

    return wait


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
