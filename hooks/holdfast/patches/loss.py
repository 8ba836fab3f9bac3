"""The loss as it passes by: the root of a backward pass, when that is a single number.

On a CPU it is read at once. From a GPU it is copied without waiting and read at a later step, when
the copy is known to be complete; nothing here ever synchronises.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from holdfast.guard import Guard
from holdfast.page import Word
from holdfast.recorder import Recorder


class LossWatch:
    """Reads the losses of plain tensors; a DTensor's or any subclass's might need communication."""

    def __init__(self, torch: Any, recorder: Recorder) -> None:
        self._torch = torch
        self._tensor = torch.Tensor
        self._recorder = recorder
        self._copies: PinnedCopies | None = None
        self._scaled: weakref.ref[Any] | None = None
        self._unscaled: Any = None

    def look(self, args: tuple[Any, ...]) -> None:
        """Look at the arguments of a backward pass that is about to start."""
        recorder = self._recorder
        if recorder.loss_is_reported:
            return
        if self._copies is not None:
            self._copies.report(recorder.see_loss)
        root: Any = args[0] if args else None
        if self._scaled is not None and self._scaled() is root:
            root = self._unscaled
        if type(root) is not self._tensor or root.numel() != 1:
            return
        if root.is_cpu:
            value = root.item()
            if type(value) is float:  # and not complex
                recorder.see_loss(value)
        elif root.is_cuda and root.is_floating_point():
            self._start_copy(root)

    def _start_copy(self, root: Any) -> None:
        # A script may compute on another GPU than the current one. An event recorded there would
        # not follow the copy, and the first touch of it would take memory for a context.
        with self._torch.cuda.device(root.device):
            if self._torch.cuda.is_current_stream_capturing():
                return  # a copy now would become part of the graph
            if self._copies is None:
                self._copies = PinnedCopies(self._torch)
            self._copies.start(root.detach(), self._recorder.word(Word.STEP) + 1)

    def watch_scaler(self, guard: Guard) -> None:
        """Remember what a GradScaler scaled: the root is then the loss times some power of two."""
        scaler = getattr(getattr(self._torch, "amp", None), "GradScaler", None)
        if scaler is None:
            return
        scale = scaler.scale
        is_compiling = self._torch.compiler.is_compiling
        remember = guard.wrap("loss scale", self._remember, None)

        @functools.wraps(scale)
        def wrapper(scaler: Any, outputs: Any) -> Any:
            scaled = scale(scaler, outputs)
            if not is_compiling():
                remember(outputs, scaled)
            return scaled

        scaler.scale = wrapper

    def _remember(self, outputs: Any, scaled: Any) -> None:
        if type(outputs) is self._tensor and outputs.numel() == 1:
            self._scaled = weakref.ref(scaled)
            self._unscaled = outputs.detach()


class PinnedCopies:
    """Losses on their way from the GPU: a few pinned numbers, used in turn."""

    SLOTS = 8
    """Steps that the host may run ahead of the GPU before a loss is left out."""

    def __init__(self, torch: Any) -> None:
        self._numbers = torch.zeros(self.SLOTS, dtype=torch.float32, pin_memory=True)
        self._events = [torch.cuda.Event() for _ in range(self.SLOTS)]
        self._steps = [0] * self.SLOTS
        self._started = 0
        self._reported = 0

    def start(self, loss: Any, step: int) -> None:
        """Start to copy a loss; left out when all slots are under way."""
        if self._started - self._reported >= self.SLOTS:
            return
        slot = self._started % self.SLOTS
        self._numbers[slot : slot + 1].copy_(loss.reshape(1), non_blocking=True)
        self._events[slot].record()
        self._steps[slot] = step
        self._started += 1

    def report(self, tell: Callable[[float, int], None]) -> None:
        """Tell what has arrived, oldest first: the loss and its step."""
        while self._reported < self._started:
            slot = self._reported % self.SLOTS
            if not self._events[slot].query():
                return
            tell(float(self._numbers[slot]), self._steps[slot])
            self._reported += 1
