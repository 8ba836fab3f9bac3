"""The loss as it passes by: the root of a backward pass, when that is a single number."""

from __future__ import annotations

import functools
import weakref
from typing import Any

from holdfast.guard import Guard
from holdfast.recording.device_numbers import DeviceNumbers
from holdfast.recording.recorder import Recorder


class LossWatch:
    """Reads the losses of plain tensors; a DTensor's or any subclass's might need communication."""

    def __init__(self, torch: Any, recorder: Recorder) -> None:
        self._torch = torch
        self._tensor = torch.Tensor
        self._recorder = recorder
        self._numbers = DeviceNumbers(torch, recorder, recorder.note_loss)
        self._scaled: weakref.ref[Any] | None = None
        self._unscaled: Any = None

    def look(self, args: tuple[Any, ...]) -> None:
        """Look at the arguments of a backward pass that is about to start."""
        recorder = self._recorder
        if recorder.loss_is_reported:
            return
        root: Any = args[0] if args else None
        if self._scaled is not None and self._scaled() is root:
            root = self._unscaled
        if type(root) is not self._tensor or root.numel() != 1:
            return
        if not root.is_cpu:
            self._numbers.read(root)
            return
        value = root.item()
        if type(value) is float:  # and not complex
            recorder.note_loss(value)

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
        if scaled is not outputs:  # else it is switched off, as under bfloat16
            self._recorder.scale()
        if type(outputs) is self._tensor and outputs.numel() == 1:
            self._scaled = weakref.ref(scaled)
            self._unscaled = outputs.detach()
