"""What a signal handler of the script raises in a callback of ours that swallows it.

Python calls signal handlers between two instructions of the main thread. After the garbage
collector, which is C, that is the first instruction of whoever listens to it; and what is raised
there goes no further than `sys.unraisablehook`. A Ctrl-C would be lost.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

GLANCE_S = 0.001


def hand_on(callback: Callable[..., Any]) -> None:
    """Raise it again in the main thread, soon after the callback that swallowed it."""
    before = sys.unraisablehook

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        if unraisable.object is not callback:
            before(unraisable)
            return
        raised = unraisable.exc_value or unraisable.exc_type()
        threading.Thread(target=_raise_behind, args=[hook.__code__, raised], daemon=True).start()

    sys.unraisablehook = hook


def _raise_behind(hook: CodeType, raised: BaseException) -> None:
    """In the main thread, once it has left the hook: there it would be swallowed once more, and for
    good."""
    main = threading.main_thread().ident or 0
    while _is_within(sys._current_frames().get(main), hook):
        time.sleep(GLANCE_S)
    kind = type(raised)
    # Python takes a class only, and makes the exception itself: an exit code would be lost.
    made = {"__init__": lambda self: kind.__init__(self, *raised.args)}
    again = type(kind.__name__, (kind,), made)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main), ctypes.py_object(again))


def _is_within(frame: FrameType | None, code: CodeType) -> bool:
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None
