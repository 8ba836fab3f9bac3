"""Single numbers that the training works out on a GPU, read without ever waiting for it.

Each is copied meanwhile and told at a later step, when the copy is known to be complete; nothing
here ever synchronises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.contract.page import Word
from holdfast.recording.recorder import Recorder

Tell = Callable[[float, int], None]
"""Told a number and its step."""


class DeviceNumbers:
    """Reads plain tensors of one element. What lies on a CPU needs none of this."""

    def __init__(self, torch: Any, recorder: Recorder, tell: Tell) -> None:
        self._torch = torch
        self._recorder = recorder
        self._tell = tell
        self._copies: PinnedCopies | None = None

    def read(self, number: Any) -> None:
        """Tell it once it has arrived, and now what has arrived since.

        What is complex or on another kind of device is left.
        """
        if self._copies is not None:
            self._copies.report(self._tell)
        if number.is_cuda and number.is_floating_point():
            self._start_copy(number)

    def _start_copy(self, number: Any) -> None:
        # A script may compute on another GPU than the current one. An event recorded there would
        # not follow the copy, and the first touch of it would take memory for a context.
        with self._torch.cuda.device(number.device):
            if self._torch.cuda.is_current_stream_capturing():
                return  # a copy now would become part of the graph
            if self._copies is None:
                self._copies = PinnedCopies(self._torch)
            self._copies.start(number.detach(), self._recorder.word(Word.STEP) + 1)


class PinnedCopies:
    """Numbers on their way from the GPU: a few pinned ones, used in turn."""

    SLOTS = 8
    """Steps that the host may run ahead of the GPU before one is left out."""

    def __init__(self, torch: Any) -> None:
        self._numbers = torch.zeros(self.SLOTS, dtype=torch.float32, pin_memory=True)
        self._events = [torch.cuda.Event() for _ in range(self.SLOTS)]
        self._steps = [0] * self.SLOTS
        self._started = 0
        self._reported = 0

    def start(self, number: Any, step: int) -> None:
        """Start to copy a number; left out when all slots are under way."""
        if self._started - self._reported >= self.SLOTS:
            return
        slot = self._started % self.SLOTS
        self._numbers[slot : slot + 1].copy_(number.reshape(1), non_blocking=True)
        self._events[slot].record()
        self._steps[slot] = step
        self._started += 1

    def report(self, tell: Tell) -> None:
        """Tell what has arrived, oldest first: the number and its step."""
        while self._reported < self._started:
            slot = self._reported % self.SLOTS
            if not self._events[slot].query():
                return
            tell(float(self._numbers[slot]), self._steps[slot])
            self._reported += 1
