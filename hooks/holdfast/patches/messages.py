"""Point-to-point messages that the training sends and receives: with whom.

How long they take is not looked at here (see `collectives`).
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from holdfast.contract.page import Phase, Word
from holdfast.guard import Guard
from holdfast.patches.names import Function, replace
from holdfast.recording.neighbours import Message, Neighbours
from holdfast.recording.recorder import Recorder

SENDING = ("isend", "send", "send_object_list")
HEARING = ("irecv", "recv", "recv_object_list")
BATCH = "batch_isend_irecv"

Read = Callable[[tuple[Any, ...], dict[str, Any]], list[Message]]


def install(torch: Any, recorder: Recorder, guard: Guard, neighbours: Neighbours) -> None:
    """Hook what this torch has of them, under both names by which scripts import them."""
    distributed = torch.distributed
    for name in (*SENDING, *HEARING, BATCH):
        read = _batch if name == BATCH else _one(distributed, name in SENDING)
        note = guard.wrap(f"with whom to {name}", _noting(recorder, neighbours, read), None)
        wrap = functools.partial(_before, torch.compiler.is_compiling, note)
        replace(name, (distributed.distributed_c10d, distributed), wrap)


def _before(
    is_compiling: Callable[[], bool], note: Callable[..., None], function: Function
) -> Function:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not is_compiling():
            note(args, kwargs)
        return function(*args, **kwargs)

    return wrapper


def _noting(recorder: Recorder, neighbours: Neighbours, read: Read) -> Callable[..., None]:
    def note(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # On a GPU the backward pass runs in threads of its own; others are not the training's.
        if threading.get_ident() == recorder.thread or recorder.phase is Phase.BACKWARD:
            neighbours.note(recorder.word(Word.STEP), read(args, kwargs))

    return note


def _one(distributed: Any, is_sent: bool) -> Read:
    name = "dst" if is_sent else "src"

    def read(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Message]:
        peer = args[1] if len(args) > 1 else kwargs.get(name)
        in_group = kwargs.get(f"group_{name}")
        if peer is None and in_group is not None:
            group = args[2] if len(args) > 2 else kwargs.get("group")
            known = group is not None
            peer = distributed.get_global_rank(group, in_group) if known else in_group
        return [(is_sent, None if peer is None else int(peer))]

    return read


def _batch(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Message]:
    messages = args[0] if args else kwargs["p2p_op_list"]
    return [(one.op.__name__ in SENDING, int(one.peer)) for one in messages]
