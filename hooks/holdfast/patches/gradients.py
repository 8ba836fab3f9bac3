"""The norm of the gradients as it passes by: what clipping them has to work out anyway.

A norm that is spread over several processes is read as far as it lies in this one: the whole would
take a collective. (FSDP2's comes whole.) Scripts that clip in another way may report it themselves.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

from holdfast.guard import Guard
from holdfast.patches.names import Function, replace
from holdfast.recording.device_numbers import DeviceNumbers
from holdfast.recording.recorder import Recorder


def install(torch: Any, recorder: Recorder, guard: Guard) -> None:
    """Hook the clipping, under both names by which scripts import it."""
    utils = torch.nn.utils
    is_compiling = torch.compiler.is_compiling
    look = guard.wrap("gradient norm", GradientWatch(torch, recorder).look, None)

    def wrap(clip: Function) -> Function:
        @functools.wraps(clip)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            norm = clip(*args, **kwargs)
            if not is_compiling():
                look(norm)
            return norm

        return wrapper

    replace("clip_grad_norm_", (utils.clip_grad, utils), wrap)


class GradientWatch:
    """Reads norms as they are worked out, until the script reports its own."""

    def __init__(self, torch: Any, recorder: Recorder) -> None:
        self._tensor = torch.Tensor
        self._no_grad = torch.no_grad
        self._recorder = recorder
        self._numbers = DeviceNumbers(torch, recorder, recorder.note_gradient)

    def look(self, norm: Any) -> None:
        """Look at what clipping answered."""
        recorder = self._recorder
        if recorder.gradient_is_reported or threading.get_ident() != recorder.thread:
            return
        if type(norm) is not self._tensor:
            norm = self._part(norm)
        if type(norm) is not self._tensor or norm.numel() != 1:
            return
        if not norm.is_cpu:
            self._numbers.read(norm)
            return
        value = norm.item()
        if type(value) is float:
            recorder.note_gradient(value)

    def _part(self, norm: Any) -> Any:
        """What lies in this process of a norm that is spread over several; None: it is none."""
        to_local = getattr(norm, "to_local", None)
        if to_local is None:
            return None
        with self._no_grad():
            return to_local()
