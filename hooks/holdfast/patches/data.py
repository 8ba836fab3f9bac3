"""Fetching a batch: a phase, and a hint at what comes next (training, evaluating, or nothing).

Hooks the iterator that all of torch's own DataLoader iterators share. A batch that is fetched while
no gradients are wanted is one to evaluate on; fetching it is part of that.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from holdfast.contract.page import Phase
from holdfast.guard import Guard
from holdfast.patches.work import BatchWork
from holdfast.recording.recorder import Recorder

_DATA, _FORWARD, _EVALUATING, _IDLE = Phase.DATA, Phase.FORWARD, Phase.EVALUATING, Phase.IDLE


def install(torch: Any, recorder: Recorder, guard: Guard) -> None:
    """Hook the DataLoader."""
    iterator = torch.utils.data.dataloader._BaseDataLoaderIter
    fetch = iterator.__next__
    is_compiling = torch.compiler.is_compiling
    look = guard.wrap("work of a batch", BatchWork(torch, recorder).look, None)
    fetches = Fetches(torch, recorder, look)
    begin, end, end_early = guard.pair("data", fetches.begin, fetches.end, fetches.end_early)

    @functools.wraps(fetch)
    def wrapper(self: Any) -> Any:
        if is_compiling():
            return fetch(self)
        previous = begin()
        if previous is None:
            return fetch(self)
        try:
            batch = fetch(self)
        except StopIteration:
            end_early(_IDLE)
            raise
        except BaseException:
            end_early(previous)
            raise
        end(previous, batch)
        return batch

    iterator.__next__ = wrapper


class Fetches:
    """One at a time: a loader may take its batches from another one."""

    def __init__(self, torch: Any, recorder: Recorder, look: Callable[[Any], None]) -> None:
        self._recorder = recorder
        self._is_grad_enabled = torch.is_grad_enabled
        self._look = look
        self._is_under_way = False

    def begin(self) -> Phase | None:
        """A batch is asked for; None when that is no fetch of its own."""
        recorder = self._recorder
        if self._is_under_way or threading.get_ident() != recorder.thread:
            return None
        self._is_under_way = True
        if not self._is_grad_enabled():
            return recorder.enter(_EVALUATING)
        if recorder.phase is _DATA:
            return _DATA
        recorder.rest_until_now()
        return recorder.enter(_DATA)

    def end(self, previous: Phase, batch: Any) -> None:
        """It is there."""
        recorder = self._recorder
        self._is_under_way = False
        if recorder.phase is not _DATA:
            recorder.enter(_EVALUATING)
            return
        if previous is not _DATA:  # else the loop around says what comes next
            recorder.enter(_FORWARD)
        if recorder.is_measured:
            self._look(batch)

    def end_early(self, phase: Phase) -> None:
        """There is none."""
        self._is_under_way = False
        self._recorder.enter(phase)
