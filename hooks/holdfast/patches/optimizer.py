"""The optimizer's step: a phase, and without a wrapped loop also the end of a training step.

Uses torch's public global hooks. GradScaler's skipped steps never reach them.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

from holdfast import importing, process
from holdfast.devices import write_devices
from holdfast.guard import Guard
from holdfast.page import DEVICES_SUFFIX, Phase, Word
from holdfast.patches.group import page_of
from holdfast.patches.timed import after
from holdfast.recorder import Recorder

_OPTIMIZER = Phase.OPTIMIZER


def install(torch: Any, recorder: Recorder, guard: Guard) -> None:
    """Hook every optimizer."""
    from torch.optim import optimizer as hooks

    place = page_of(recorder.attempt)

    def tell_devices(optimizer: Any) -> None:
        if place is not None and process.current() is recorder:
            write_devices(torch, optimizer, place.with_suffix(DEVICES_SUFFIX))

    steps = OptimizerSteps(recorder, guard.wrap("devices", tell_devices, None))
    is_compiling = torch.compiler.is_compiling
    begin = guard.wrap("optimizer begins", steps.begin, None)
    end = guard.wrap("optimizer ends", steps.end, None)
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
    importing.once("torch._dynamo", keep_out_of_graphs)


def _breaks_the_graph_anyway(optimizer: Any) -> bool:
    """Whether its step is torch's own, which torch.compile can't trace whole either.

    Others are left alone there: a break of ours would fail `fullgraph=True`.
    """
    return str(type(optimizer).__module__).startswith("torch.optim.")


class OptimizerSteps:
    """Steps are the calls of the first optimizer that was seen; others only take their time."""

    def __init__(
        self, recorder: Recorder, tell_devices: Callable[[Any], None] = lambda _: None
    ) -> None:
        self._recorder = recorder
        self._tell_devices = tell_devices
        self._first: weakref.ref[Any] | None = None
        self._calls = 0
        self._counted = recorder.index_of(Word.OPTIMIZER_CALLS)
        self._outermost = 0
        self._previous = Phase.STARTING

    def begin(self, optimizer: Any) -> None:
        """An optimizer starts to step; one may call another inside."""
        recorder = self._recorder
        if self._first is None or self._first() is None:
            is_new_here = self._first is None  # a script may make a new one for each step
            self._first = weakref.ref(optimizer)
            recorder.thread = threading.get_ident()  # who steps the optimizer is who trains
            if is_new_here:
                self._tell_devices(optimizer)
        elif threading.get_ident() != recorder.thread:
            return
        if recorder.phase is not _OPTIMIZER:
            self._outermost = id(optimizer)
            self._previous = recorder.enter(_OPTIMIZER)

    def end(self, optimizer: Any) -> None:
        """An optimizer has stepped."""
        recorder = self._recorder
        if threading.get_ident() != recorder.thread:
            return
        if id(optimizer) == self._outermost:
            recorder.enter(after(self._previous))
        if self._first is not None and self._first() is optimizer:
            self._calls += 1
            recorder.count_at(self._counted)
            if not recorder.loop_is_wrapped:
                recorder.end_step(self._calls)
