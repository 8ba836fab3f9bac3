"""The backward pass: a phase, and the place where the loss passes by.

`torch.autograd.backward` is what `Tensor.backward` calls. Gradients taken by `autograd.grad` are
not seen; their time counts as forward.
"""

from __future__ import annotations

import functools
from typing import Any

from holdfast.guard import Guard
from holdfast.page import Phase
from holdfast.patches.loss import LossWatch
from holdfast.patches.timed import after, entering
from holdfast.recorder import Recorder


def install(torch: Any, recorder: Recorder, guard: Guard) -> None:
    """Hook the backward pass and, where there is one, the loss scaler."""
    losses = LossWatch(torch, recorder)
    backward = torch.autograd.backward
    is_compiling = torch.compiler.is_compiling

    def leave(previous: Phase) -> None:
        recorder.enter(after(previous))

    guarded_enter = guard.wrap("backward begins", entering(recorder, Phase.BACKWARD), None)
    guarded_leave = guard.wrap("backward ends", leave, None)
    look = guard.wrap("loss", losses.look, None)

    @functools.wraps(backward)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return backward(*args, **kwargs)
        previous = guarded_enter()
        if previous is None:
            return backward(*args, **kwargs)
        look(args)
        try:
            return backward(*args, **kwargs)
        finally:
            guarded_leave(previous)

    torch.autograd.backward = wrapper
    losses.watch_scaler(guard)
