"""What a signal handler of the script raises in a callback of ours that swallows it.

Python calls signal handlers between two instructions of the main thread. After the garbage
collector, which is C, that is the first instruction of whoever listens to it; and what is raised
there goes no further than `sys.unraisablehook`. A Ctrl-C would be lost.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from typing import Any

SOON_S = 0.001
"""Once the callback is over. Where it is not, this happens again."""


def hand_on(callback: Callable[..., Any]) -> None:
    """Raise it again in the main thread, soon after the callback that swallowed it."""
    before = sys.unraisablehook

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        if unraisable.object is not callback:
            before(unraisable)
            return
        raised = unraisable.exc_value or unraisable.exc_type()
        threading.Timer(SOON_S, _raise_in_main_thread, [raised]).start()

    sys.unraisablehook = hook


def _raise_in_main_thread(raised: BaseException) -> None:
    kind = type(raised)
    # Python takes a class only, and makes the exception itself: an exit code would be lost.
    made = {"__init__": lambda self: kind.__init__(self, *raised.args)}
    again = type(kind.__name__, (kind,), made)
    ident = ctypes.c_ulong(threading.main_thread().ident or 0)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(again))
