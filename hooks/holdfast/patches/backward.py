"""The backward pass: a phase, what it waits for at its end, and the place where the loss passes by.

`torch.autograd.backward` is what `Tensor.backward` calls. Gradients taken by `autograd.grad` are
not seen; their time counts as forward.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

from holdfast.contract.page import Phase
from holdfast.guard import Guard
from holdfast.patches.backward_wait import BackwardWait
from holdfast.patches.loss import LossWatch
from holdfast.recording.recorder import Recorder

_BACKWARD = Phase.BACKWARD


def install(torch: Any, recorder: Recorder, guard: Guard) -> None:
    """Hook the backward pass and, where there is one, the loss scaler."""
    losses = LossWatch(torch, recorder)
    wait = BackwardWait(torch, recorder, guard)
    backward = torch.autograd.backward
    is_compiling = torch.compiler.is_compiling
    own_thread = threading.get_ident
    look = guard.wrap("loss", losses.look, None)
    arm = guard.wrap("backward wait", wait.arm, False)

    def enter(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Phase | None:
        recorder.gradients.note_backward()
        previous = recorder.phase
        if own_thread() != recorder.thread:
            return None
        if previous is _BACKWARD:  # within another, as reentrant checkpoints do: it may wait too
            return previous if recorder.has_group and arm(args, kwargs) else None
        recorder.add_backward()
        look(args)
        if recorder.has_group and recorder.is_measured:
            arm(args, kwargs)
        return recorder.enter(_BACKWARD)

    guarded_enter, guarded_leave = guard.pair("backward", enter, wait.leave)

    @functools.wraps(backward)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return backward(*args, **kwargs)
        previous = guarded_enter(args, kwargs)
        if previous is None:
            return backward(*args, **kwargs)
        try:
            return backward(*args, **kwargs)
        finally:
            guarded_leave(previous)

    torch.autograd.backward = wrapper
    losses.watch_scaler(guard)
