"""The optimizer's step: a phase, and without a wrapped loop also the end of a training step.

Uses torch's public global hooks. Steps that a GradScaler passes over never reach them, so that one
is asked too: they use up their gradients as others do.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

from holdfast.contract.page import DEVICES_SUFFIX, Phase, Word
from holdfast.guard import Guard
from holdfast.patches.group import page_of
from holdfast.patches.timed import after, is_training
from holdfast.rank import importing, process
from holdfast.recording.devices import write_devices
from holdfast.recording.recorder import Recorder
from holdfast.recording.step_flops import COUNTED, Parameters

_BACKWARD, _OPTIMIZER = Phase.BACKWARD, Phase.OPTIMIZER


def install(torch: Any, recorder: Recorder, guard: Guard) -> None:
    """Hook every optimizer."""
    from torch.optim import optimizer as hooks

    parameters = Parameters(lambda count: setattr(recorder, "parameters", count))
    steps = OptimizerSteps(
        recorder,
        guard.wrap("devices", _devices_teller(torch, recorder), None),
        guard.wrap("parameters", parameters.look, None),
    )
    is_compiling = torch.compiler.is_compiling
    recorder.gradients.is_capturing = _graph_watch(torch)
    recorder.gradients.is_training = functools.partial(is_training, recorder)
    begin, time_end = guard.pair("optimizer", steps.begin, steps.end)
    note_used = guard.wrap("used gradients", recorder.gradients.note_step, None)

    def end(optimizer: Any) -> None:
        note_used(optimizer)
        time_end(optimizer)

    outside_the_graph = {"begin": begin, "end": end}

    def keep_out_of_graphs() -> None:
        outside_the_graph["begin"] = torch.compiler.disable(begin)
        outside_the_graph["end"] = torch.compiler.disable(end)

    def before_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not is_compiling():
            begin(optimizer)
        elif _breaks_the_graph_anyway(optimizer):
            outside_the_graph["begin"](optimizer)

    def after_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not is_compiling():
            end(optimizer)
        elif _breaks_the_graph_anyway(optimizer):
            outside_the_graph["end"](optimizer)

    hooks.register_optimizer_step_pre_hook(before_step)
    hooks.register_optimizer_step_post_hook(after_step)
    importing.once(
        "torch._dynamo", lambda: guard.run("optimizer out of graphs", keep_out_of_graphs)
    )
    _hook_scaler(torch, note_used)


def _devices_teller(torch: Any, recorder: Recorder) -> Callable[[Any], None]:
    place = page_of(recorder.attempt)

    def tell_devices(optimizer: Any) -> None:
        if place is not None and process.current() is recorder:
            write_devices(torch, optimizer, place.with_suffix(DEVICES_SUFFIX))

    return tell_devices


def _graph_watch(torch: Any) -> Callable[[], bool]:
    """What asks whether a CUDA graph is being captured."""
    cuda = torch.cuda
    if not (torch.version.cuda or torch.version.hip):
        return lambda: False
    return lambda: cuda.is_initialized() and bool(cuda.is_current_stream_capturing())


def _hook_scaler(torch: Any, note_used: Callable[[Any], None]) -> None:
    scaler = getattr(getattr(torch, "amp", None), "GradScaler", None)
    if scaler is None:
        return
    step = scaler.step
    is_compiling = torch.compiler.is_compiling

    @functools.wraps(step)
    def wrapper(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        answer = step(self, optimizer, *args, **kwargs)
        if not is_compiling():
            note_used(optimizer)
        return answer

    scaler.step = wrapper


def _breaks_the_graph_anyway(optimizer: Any) -> bool:
    """Whether its step is torch's own, which torch.compile can't trace whole either.

    Others are left alone there: a break of ours would fail `fullgraph=True`.
    """
    return str(type(optimizer).__module__).startswith("torch.optim.")


PATIENCE = 1000
"""Calls of others after which the first-seen optimizer is taken to have been put aside. A model may
have an optimizer for each of its parameters; ten times the most that ever came between is let pass
besides."""


class OptimizerSteps:
    """Steps are the calls of the first optimizer that was seen; others only take their time."""

    def __init__(
        self,
        recorder: Recorder,
        tell_devices: Callable[[Any], None] = lambda _: None,
        count_parameters: Callable[[Any], None] = lambda _: None,
    ) -> None:
        self._recorder = recorder
        self._tell_devices = tell_devices
        self._count_parameters = count_parameters
        self._first: Callable[[], Any] = lambda: None
        self._is_new_here = True
        self._calls = 0
        self._others = 0
        self._most_others = 0
        self._counted = recorder.index_of(Word.OPTIMIZER_CALLS)
        self._outermost = 0
        self._thread = -1
        self._previous = Phase.STARTING

    def begin(self, optimizer: Any) -> None:
        """An optimizer starts to step; one may call another inside."""
        recorder, thread = self._recorder, threading.get_ident()
        first = self._first()
        if first is None:
            self._adopt(optimizer, thread)
        elif thread != recorder.thread and recorder.phase is not _BACKWARD:
            return
        elif first is not optimizer:
            self._pass_over(optimizer)
        if self._calls < COUNTED:
            self._count_parameters(optimizer)
        if recorder.phase is not _OPTIMIZER:
            self._outermost, self._thread = id(optimizer), thread
            self._previous = recorder.enter(_OPTIMIZER)

    def end(self, optimizer: Any) -> None:
        """An optimizer has stepped."""
        if threading.get_ident() != self._thread:
            return
        recorder = self._recorder
        phase = after(self._previous) if id(optimizer) == self._outermost else None
        if self._first() is optimizer:
            if self._others:
                self._most_others, self._others = max(self._most_others, self._others), 0
            self._calls += 1
            recorder.count_at(self._counted)
            if not recorder.loop_is_wrapped:
                recorder.end_step(self._calls, phase)
                recorder.note_stepped()
                return
        if phase is not None:
            recorder.enter(phase)
            recorder.note_stepped()

    def _adopt(self, optimizer: Any, thread: int) -> None:
        """There is no first one, or no longer."""
        self._first = weakref.ref(optimizer)
        if self._recorder.phase is not _BACKWARD:  # else it may be in one of the engine's threads
            self._recorder.thread = thread  # who steps the optimizer is who trains
        if self._is_new_here:  # a script may make a new one for each step
            self._is_new_here = False
            self._tell_devices(optimizer)

    def _pass_over(self, optimizer: Any) -> None:
        self._others += 1
        if self._others > PATIENCE + 10 * self._most_others:
            self._first, self._others = weakref.ref(optimizer), 0
