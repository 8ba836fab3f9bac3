"""A call that is a phase of its own: entered before, left after, however it ends."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from holdfast.contract.page import Phase, Word
from holdfast.guard import Guard
from holdfast.recording.recorder import Recorder

Enter = Callable[[], "Phase | None"]
Leave = Callable[[Phase], None]

_FORWARD = Phase.FORWARD
_LAST_BEFORE_ANY_STEP = int(Phase.RESTORING)
"""Starting comes before it."""


def after(previous: Phase) -> Phase:
    """The phase to return to: once a step's parts are seen, what surrounds them is the forward."""
    return previous if previous > _LAST_BEFORE_ANY_STEP else _FORWARD


def is_training(recorder: Recorder) -> bool:
    """Whether this thread trains: the one that runs the loop or, while a backward pass keeps that
    one waiting, one of the engine's, which has a thread for each GPU."""
    return threading.get_ident() == recorder.thread or recorder.phase is Phase.BACKWARD


def entering(recorder: Recorder, phase: Phase, counted: Word | None = None) -> Enter:
    """Enter the phase; None when it is not to be left again: nested, or not the thread that trains.

    The order of the tests is their price.
    """
    own_thread = threading.get_ident
    index = -1 if counted is None else recorder.index_of(counted)

    def enter() -> Phase | None:
        if recorder.phase is phase or own_thread() != recorder.thread:
            return None
        if index >= 0:
            recorder.count_at(index)
        return recorder.enter(phase)

    return enter


def leaving(recorder: Recorder, counted: Word | None = None) -> Leave:
    """Return to the phase before."""

    index = -1 if counted is None else recorder.index_of(counted)

    def leave(previous: Phase) -> None:
        if index >= 0:
            recorder.count_at(index)
        recorder.enter(previous)

    return leave


def timed(
    function: Callable[..., Any],
    is_compiling: Callable[[], bool],
    guard: Guard,
    enter: Enter,
    leave: Leave,
) -> Callable[..., Any]:
    """The function, timed. Its results, errors and name stay its own."""
    name = function.__name__
    guarded_enter, guarded_leave = guard.pair(name, enter, leave)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return function(*args, **kwargs)
        previous = guarded_enter()
        if previous is None:
            return function(*args, **kwargs)
        try:
            return function(*args, **kwargs)
        finally:
            guarded_leave(previous)

    return wrapper
