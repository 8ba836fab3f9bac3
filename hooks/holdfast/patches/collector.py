"""Python's garbage collector: how long it stopped the thread that trains.

The youngest generation is left out: it is collected many times a second and takes microseconds.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from typing import Any

from holdfast.guard import Guard
from holdfast.patches.raised_again import hand_on
from holdfast.recording.recorder import Recorder


def install(torch: Any, recorder: Recorder, guard: Guard) -> None:
    """Listen to the collector."""
    tell = guard.wrap("garbage collector", Collections(recorder).tell, None)

    def listen(moment: str, info: dict[str, int]) -> None:
        if info["generation"]:
            tell(moment)

    gc.callbacks.append(listen)
    hand_on(listen)


class Collections:
    """Times them. They never overlap: a collection does not start another one."""

    def __init__(self, recorder: Recorder, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._recorder = recorder
        self._clock = clock
        self._began_ns = 0

    def tell(self, moment: str) -> None:
        """One starts or stops, in whichever thread allocated last."""
        recorder = self._recorder
        if threading.get_ident() != recorder.thread:
            return
        if moment == "start":
            self._began_ns = self._clock()
        elif self._began_ns:
            recorder.add_collected(self._clock() - self._began_ns)
            self._began_ns = 0
