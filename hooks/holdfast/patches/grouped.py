"""A call in a process group: a phase, and time, count and bytes of its group.

Bytes are those of the larger side, as nccl-tests counts them: what is reduced, what is gathered,
what is scattered. Divided by the time they are the algorithm bandwidth.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.contract.page import Phase, Word
from holdfast.guard import Guard
from holdfast.recording.async_work import Underway
from holdfast.recording.group_slots import SENT, GroupSlots
from holdfast.recording.recorder import Recorder

Begun = tuple[Phase, int]
"""The phase that the call interrupted, and its group's slot."""

SIZED = (
    "tensor_list",
    "output_tensor",
    "output_tensor_lists",
    "input_list",
    "input",
    "input_tensor_list",
    "scatter_list",
    "tensors",
    "tensor",
    "p2p_op_list",
)
"""Names that torch gives to a call's tensors; of several the earliest here is the larger side."""

NOWHERE = 1 << 30
"""Where an argument stands that the function does not take."""


@dataclass(frozen=True)
class Arguments:
    """Where a function takes its group and the tensors that give its size."""

    group: int = NOWHERE
    sized: int = NOWHERE
    sized_name: str = ""
    may_go_on: bool = False
    """It can be told to go on while the caller works, and answers what awaits it."""


def read_arguments(function: Callable[..., Any], sized: tuple[str, ...] = SIZED) -> Arguments:
    """Of the function, as its signature tells."""
    names = list(inspect.signature(function).parameters)
    name = next((name for name in sized if name in names), "")
    return Arguments(
        group=names.index("group") if "group" in names else NOWHERE,
        sized=names.index(name) if name else NOWHERE,
        sized_name=name,
        may_go_on="async_op" in names,
    )


def bytes_of(told: Any) -> int:
    """Of a tensor, of tensors in lists, of messages that carry one each; a sparse one has none."""
    if type(told) in (list, tuple):
        return sum(map(bytes_of, told))
    try:
        size: int = getattr(told, "tensor", told).nbytes
    except (AttributeError, RuntimeError):
        return 0
    return size


@dataclass(frozen=True)
class Groups:
    """What all calls of a rank share."""

    recorder: Recorder
    slots: GroupSlots
    underway: Underway
    graph_task: Callable[[], int]
    """Which backward pass this thread is at work for; -1: none."""

    @classmethod
    def of(cls, recorder: Recorder, torch: Any = None) -> Groups:
        """Of a rank that has no groups yet."""
        graph_task = getattr(getattr(torch, "_C", None), "_current_graph_task_id", lambda: -1)
        return cls(recorder, GroupSlots(recorder), Underway(recorder), graph_task)

    def is_elsewhere(self) -> bool:
        """Whether this thread does nothing that the training waits for: neither the one that trains
        nor, while that one waits for its backward pass, one of the engine's for a GPU."""
        return threading.get_ident() != self.recorder.thread and (
            self.recorder.phase is not Phase.BACKWARD or self.graph_task() < 0
        )


Begin = Callable[[tuple[Any, ...], dict[str, Any]], "Begun | None"]
End = Callable[[Begun, Any], None]


def beginning(groups: Groups, arguments: Arguments, counted: bool) -> Begin:
    """Enter the phase; None when it is not to be left again: nested, or in another thread.

    What FSDP calls at the end of a backward pass, where the pass itself counts as communicating
    already (see `backward_wait`), is not nested: its group is known better.
    The order of the tests is their price. counted: in the words that tell of all groups together.
    """
    underway, is_elsewhere = groups.underway, groups.is_elsewhere
    recorder, slots, known = groups.recorder, groups.slots, groups.slots.known
    own_thread, communicating = threading.get_ident, Phase.COMMUNICATING
    group_at, sized_at, name = arguments.group, arguments.sized, arguments.sized_name
    entered = recorder.index_of(Word.COLLECTIVES_ENTERED)
    first = recorder.index_of(Word.COLLECTIVES_1)
    sent = slots.sent
    count_at, set_word, enter = recorder.count_at, recorder.set_word, recorder.enter

    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Begun | None:
        if recorder.phase is communicating and underway.is_inside:
            return None
        if own_thread() != recorder.thread and is_elsewhere():
            return None
        given = len(args)
        group = args[group_at] if group_at < given else kwargs.get("group")
        slot = known.get(id(group))
        if slot is None:
            slot = slots.slot(group)
        if slot >= 0:
            count_at(first + slot)
            told = args[sized_at] if sized_at < given else kwargs.get(name)
            if told is not None:
                try:
                    size = told.nbytes
                except (AttributeError, RuntimeError):
                    size = bytes_of(told)
                sent[slot] = size = sent[slot] + size
                set_word(SENT[slot], size)
        if counted:
            count_at(entered)
        underway.is_inside = True  # only now: nothing between may fail and leave it so
        return enter(communicating), slot

    return begin


def ending(groups: Groups, counted: bool, starts: bool) -> End:
    """Return to the phase before. starts: what it answers is awaited later."""
    recorder, underway = groups.recorder, groups.underway
    left = recorder.index_of(Word.COLLECTIVES_LEFT)
    count_at, enter, wait_in = recorder.count_at, recorder.enter, recorder.wait_in

    def end(begun: Begun, answer: Any) -> None:
        underway.is_inside = False
        if counted:
            count_at(left)
        previous, slot = begun
        since_ns = recorder.mark_ns
        enter(previous)
        ns = recorder.mark_ns - since_ns
        underway.waited_ns += ns
        if slot >= 0:
            wait_in(slot, ns)
            if starts and answer is not None:
                for work in answer if type(answer) is list else (answer,):
                    underway.start(id(work), slot, work)

    return end


def grouped(
    function: Callable[..., Any],
    is_compiling: Callable[[], bool],
    guard: Guard,
    begin: Begin,
    end: End,
) -> Callable[..., Any]:
    """The function, timed. Its results, errors and name stay its own."""
    name = function.__name__
    guarded_begin, guarded_end = guard.pair(name, begin, end)

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return function(*args, **kwargs)
        begun = guarded_begin(args, kwargs)
        if begun is None:
            return function(*args, **kwargs)
        answer = None
        try:
            answer = function(*args, **kwargs)
            return answer
        finally:
            guarded_end(begun, answer)

    return wrapper
