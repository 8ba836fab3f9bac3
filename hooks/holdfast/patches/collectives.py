"""Collectives and messages that the script or a framework calls from Python: a phase, and counts.

Not seen here: what DDP's reducer does below Python (see `reducer`), and functional collectives
(see `functional`). Calls from threads that the training does not wait for are left alone.
"""

from __future__ import annotations

from typing import Any

from holdfast.guard import Guard
from holdfast.patches.grouped import (
    Arguments,
    Begin,
    Begun,
    Groups,
    beginning,
    ending,
    grouped,
    read_arguments,
)
from holdfast.patches.names import Function, replace
from holdfast.recording.recorder import Recorder

COLLECTIVES = (
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_gather_single",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "monitored_barrier",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
)

POINT_TO_POINT = ("irecv", "isend", "recv", "recv_object_list", "send", "send_object_list")
"""Not in the counts of all groups together: ranks rightly differ in how many of these they do."""

ALWAYS_GO_ON = ("irecv", "isend")

BATCH = "batch_isend_irecv"
"""Names its group and its tensors in each of its messages."""


def install(torch: Any, recorder: Recorder, guard: Guard, groups: Groups | None = None) -> None:
    """Hook what this torch has of them, under both names by which scripts import them."""
    if not torch.distributed.is_available():
        return
    groups = groups or Groups.of(recorder, torch)
    for names, counted in ((COLLECTIVES, True), (POINT_TO_POINT, False)):
        for name in names:
            _hook(torch, name, guard, groups, counted)
    _hook(torch, BATCH, guard, groups, counted=False)


def _hook(torch: Any, name: str, guard: Guard, groups: Groups, counted: bool) -> None:
    def wrap(function: Function) -> Function:
        if name == BATCH:
            begin, starts = of_batch(beginning(groups, Arguments(sized=0), counted)), True
        else:
            arguments = read_arguments(function)
            begin = beginning(groups, arguments, counted)
            starts = arguments.may_go_on or name in ALWAYS_GO_ON
        end = ending(groups, counted, starts)
        return grouped(function, torch.compiler.is_compiling, guard, begin, end)

    replace(name, (torch.distributed.distributed_c10d, torch.distributed), wrap)


def of_batch(begin: Begin) -> Begin:
    """A batch of messages begins: it is in the group of its first."""

    def begin_batch(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Begun | None:
        messages = args[0] if args else kwargs["p2p_op_list"]
        return begin((messages,), {"group": messages[0].group})

    return begin_batch
