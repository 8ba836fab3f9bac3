"""Communication that was started and is awaited later: of which process group, and how long the
rank could work meanwhile.

A start is remembered until its wait, by a key that both know. Many are never awaited: what is
remembered is bounded, and what is forgotten counts in no group.
"""

from __future__ import annotations

import weakref
from typing import Any

from holdfast.recording.group_slots import NO_SLOT
from holdfast.recording.recorder import Recorder

MOST = 512
"""Started and not awaited. FSDP prefetches a few, a pipeline has two for each micro-batch."""


class Underway:
    """Time is the rank's own here: it stands still while the rank waits for others. So what is
    counted as overlapped was no wait, and each moment counts once, however much was under way."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._started: dict[int, tuple[int, int, Any]] = {}
        self._counted_to_ns = 0
        self.is_inside = False
        """Whether a call in a process group is being timed now; those in it are its own."""
        self.waited_ns = 0
        """So long the rank communicated and did nothing else."""

    def start(self, key: int, slot: int, handle: Any = None) -> None:
        """Begun just now. handle: whose identity the key is; gone with it."""
        try:
            reference = None if handle is None else weakref.ref(handle)
        except TypeError:
            return  # another's kind of handle: its wait is of no group
        if len(self._started) >= MOST:
            self._forget()
        own_ns = self._recorder.mark_ns - self.waited_ns
        self._started[key] = (slot, own_ns, reference)

    def await_(self, key: int, handle: Any = None) -> int:
        """Its wait begins just now; answers its group's slot."""
        known = self._started.pop(key, None)
        if known is None:
            return NO_SLOT
        slot, own_ns, reference = known
        if reference is not None and reference() is not handle:
            return NO_SLOT
        now_ns = self._recorder.mark_ns - self.waited_ns
        if own_ns < self._counted_to_ns:
            own_ns = self._counted_to_ns
        if now_ns > own_ns:
            self._recorder.add_overlapped(now_ns - own_ns)
            self._counted_to_ns = now_ns
        return slot

    def _forget(self) -> None:
        """Those whose handle is gone; all when that leaves too many."""
        self._started = {
            key: known
            for key, known in self._started.items()
            if known[2] is not None and known[2]() is not None
        }
        if len(self._started) >= MOST // 2:
            self._started = {}
