"""Fetching a batch: a phase, and a hint at what comes next (training, evaluating, or nothing).

Hooks the iterator that all of torch's own DataLoader iterators share.
"""

from __future__ import annotations

import functools
from typing import Any

from holdfast.guard import Guard
from holdfast.page import Phase
from holdfast.patches.timed import entering
from holdfast.recorder import Recorder


def install(torch: Any, recorder: Recorder, guard: Guard) -> None:
    """Hook the DataLoader."""
    iterator = torch.utils.data.dataloader._BaseDataLoaderIter
    fetch = iterator.__next__
    is_compiling = torch.compiler.is_compiling
    is_grad_enabled = torch.is_grad_enabled
    forward, evaluating = Phase.FORWARD, Phase.EVALUATING

    def fetched() -> None:
        recorder.enter(forward if is_grad_enabled() else evaluating)

    enter = guard.wrap("data begins", entering(recorder, Phase.DATA), None)
    leave_with_batch = guard.wrap("data ends", fetched, None)
    leave_to = guard.wrap("data ends early", recorder.enter, Phase.FORWARD)

    @functools.wraps(fetch)
    def wrapper(self: Any) -> Any:
        if is_compiling():
            return fetch(self)
        previous = enter()
        if previous is None:
            return fetch(self)
        try:
            batch = fetch(self)
        except StopIteration:
            leave_to(Phase.IDLE)
            raise
        except BaseException:
            leave_to(previous)
            raise
        leave_with_batch()
        return batch

    iterator.__next__ = wrapper
