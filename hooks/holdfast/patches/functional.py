"""Functional collectives, as DTensor, tensor parallelism and FSDP call them.

They start, and their result is awaited when it is first used: `wait_tensor`. Both are
communicating. A compiled graph calls what lies below them, and is timed as a whole.
"""

from __future__ import annotations

import sys
from typing import Any

from holdfast.contract.page import Phase
from holdfast.guard import Guard
from holdfast.patches.grouped import (
    Arguments,
    Begin,
    Begun,
    End,
    Groups,
    bytes_of,
    ending,
    grouped,
    read_arguments,
)
from holdfast.rank import importing
from holdfast.recording.recorder import Recorder

MODULE = "torch.distributed._functional_collectives"

CALLS = (
    ("all_reduce", ""),
    ("broadcast", ""),
    ("all_to_all_single", ""),
    ("all_reduce_coalesced", ""),
    ("all_gather_single", "all_gather_tensor"),
    ("reduce_scatter_single", "reduce_scatter_tensor"),
    ("all_gather_single_coalesced", "all_gather_into_tensor_coalesced"),
    ("reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced"),
)
"""Their names and, where a torch does not know one, its older one. Where it does, the older is left
alone: it calls the new one, and its warning of being old must name the script's line, not ours."""

INPUTS = ("self", "inputs")
WAIT = "wait_tensor"


def install(torch: Any, recorder: Recorder, guard: Guard, groups: Groups | None = None) -> None:
    """Hook them once they are imported; many scripts never do."""
    shared = groups or Groups.of(recorder, torch)
    importing.once(
        MODULE, lambda: guard.run("functional collectives", lambda: _hook(torch, guard, shared))
    )


def _hook(torch: Any, guard: Guard, groups: Groups) -> None:
    module = sys.modules[MODULE]
    results = Results(torch)
    is_compiling = torch.compiler.is_compiling

    def replace(name: str, begin: Begin, end: End) -> None:
        setattr(module, name, grouped(getattr(module, name), is_compiling, guard, begin, end))

    for newer, older in CALLS:
        name = newer if hasattr(module, newer) else older
        function = getattr(module, name, None)
        if function is not None:
            gathers = "all_gather" in name
            begin = beginning(groups, results, read_arguments(function, INPUTS), gathers)
            replace(name, begin, starting(groups, results, gathers))
    if hasattr(module, WAIT):
        replace(WAIT, awaiting(groups, results), ending(groups, counted=False, starts=False))


class Results:
    """What is known of tensors whose memory a collective fills; tensors that are only traced, or
    stand for others, are asked nothing."""

    def __init__(self, torch: Any) -> None:
        self._plain = frozenset({torch.Tensor, torch.nn.Parameter})

    def key(self, tensor: Any) -> int:
        """Where its memory begins: what a wait has in common with its start. 0: not known."""
        return int(tensor.data_ptr()) if type(tensor) in self._plain else 0

    def size(self, told: Any) -> int:
        """Bytes of a tensor or of tensors in a list."""
        if isinstance(told, (list, tuple)):
            return sum(map(self.size, told))
        tensor = getattr(told, "elem", told)
        return bytes_of(tensor) if type(tensor) in self._plain else 0


def group_of(told: Any) -> Any:
    """The group, or its name, that a script means by a mesh or a dimension of one."""
    mesh, dimension = told if type(told) is tuple and len(told) == 2 else (told, 0)
    names = getattr(mesh, "_dim_group_names", None)
    return told if names is None else names[dimension]


def beginning(groups: Groups, results: Results, arguments: Arguments, gathers: bool) -> Begin:
    """Enter the phase unless nested, traced, or not in the thread that trains.

    gathers: its larger side is what it answers, and counted then.
    """
    recorder, slots, underway = groups.recorder, groups.slots, groups.underway

    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Begun | None:
        if is_none_of_ours(groups):
            return None
        given, group_at, sized_at = len(args), arguments.group, arguments.sized
        slot = slots.slot(group_of(args[group_at] if group_at < given else kwargs.get("group")))
        if slot >= 0:
            slots.count(slot, 0 if gathers or sized_at >= given else results.size(args[sized_at]))
        underway.is_inside = True
        return recorder.enter(Phase.COMMUNICATING), slot

    return begin


def starting(groups: Groups, results: Results, gathers: bool) -> End:
    """Return to the phase before; the results are awaited when they are used."""
    end, underway = ending(groups, counted=False, starts=False), groups.underway

    def start(begun: Begun, answer: Any) -> None:
        end(begun, answer)
        slot = begun[1]
        if slot < 0 or answer is None:
            return
        if gathers:
            groups.slots.count(slot, results.size(answer), calls=0)
        for tensor in answer if type(answer) is list else (answer,):
            inner = getattr(tensor, "elem", None)
            if inner is not None and (key := results.key(inner)):
                underway.start(key, slot)

    return start


def awaiting(groups: Groups, results: Results) -> Begin:
    """A result is used for the first time; one that nobody saw start is of no group."""
    recorder, underway = groups.recorder, groups.underway

    def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Begun | None:
        if is_none_of_ours(groups):
            return None
        key = results.key(args[0] if args else kwargs.get("tensor"))
        underway.is_inside = True
        previous = recorder.enter(Phase.COMMUNICATING)
        return previous, underway.await_(key)

    return begin


def is_none_of_ours(groups: Groups) -> bool:
    """Whether this call is part of another, of a compilation, or of another thread."""
    phase = groups.recorder.phase
    return (
        (phase is Phase.COMMUNICATING and groups.underway.is_inside)
        or phase is Phase.COMPILING
        or groups.is_elsewhere()
    )
