"""How much of its device's memory a rank holds, as torch's allocator counts it: no question to the
driver, and no wait. A rank that trains on no GPU says nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from holdfast.contract.page import Word
from holdfast.recording.recorder import Recorder

EVERY_NS = 1_000_000_000
"""Memory grows over many steps. Torch gathers its counts in tens of microseconds."""


class DeviceMemory:
    """Told of the ends of steps; looks at one when a second has passed."""

    def __init__(
        self, cuda: Any, recorder: Recorder, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._cuda = cuda
        self._recorder = recorder
        self._clock = clock
        self._device = -1
        self._next_ns = 0

    def end_step(self, _: int = 0) -> bool:
        """A step ends; False: there is no such memory."""
        now_ns = self._clock()
        if now_ns < self._next_ns:
            return True
        self._next_ns = now_ns + EVERY_NS
        if self._device < 0:
            if not self._cuda.is_initialized():
                return False
            self._device = self._cuda.current_device()
            total = self._cuda.get_device_properties(self._device).total_memory
            self._recorder.set_word(Word.MEMORY_TOTAL, total)
        self._tell(self._cuda.memory_stats_as_nested_dict(self._device))
        return True

    def _tell(self, counts: Any) -> None:
        tell, reserved = self._recorder.set_word, counts["reserved_bytes"]["all"]
        tell(Word.MEMORY_ALLOCATED, counts["allocated_bytes"]["all"]["current"])
        tell(Word.MEMORY_RESERVED, reserved["current"])
        # The script may reset torch's own peak.
        peak = max(reserved["peak"], self._recorder.word(Word.MEMORY_PEAK))
        tell(Word.MEMORY_PEAK, peak)
        tell(Word.MEMORY_RETRIES, counts["num_alloc_retries"])
