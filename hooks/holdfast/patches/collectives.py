"""Collectives that the script or a framework calls from Python: a phase, and two counts.

Not seen: what DDP's reducer and FSDP's functional collectives do below Python; it counts as
backward or forward. Calls from other threads than the one that trains are left alone.
"""

from __future__ import annotations

from typing import Any

from holdfast.guard import Guard
from holdfast.page import Phase, Word
from holdfast.patches.timed import entering, leaving, timed
from holdfast.recorder import Recorder

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

POINT_TO_POINT = ("batch_isend_irecv", "recv", "recv_object_list", "send", "send_object_list")
"""Timed but not counted: ranks rightly differ in how many of these they do."""


def install(torch: Any, recorder: Recorder, guard: Guard) -> None:
    """Hook what this torch has of them, under both names by which scripts import them."""
    if not torch.distributed.is_available():
        return
    collective = (
        entering(recorder, Phase.COMMUNICATING, Word.COLLECTIVES_ENTERED),
        leaving(recorder, Word.COLLECTIVES_LEFT),
    )
    message = (entering(recorder, Phase.COMMUNICATING), leaving(recorder))
    for names, (enter, leave) in ((COLLECTIVES, collective), (POINT_TO_POINT, message)):
        for name in names:
            replace(torch, name, guard, enter, leave)


def replace(torch: Any, name: str, guard: Guard, enter: Any, leave: Any) -> None:
    """Put the timed function in both places, as one and the same object."""
    places = (torch.distributed.distributed_c10d, torch.distributed)
    function = getattr(places[0], name, None)
    if function is None:
        return
    wrapper = timed(function, torch.compiler.is_compiling, guard, enter, leave)
    for place in places:
        if getattr(place, name, None) is function:
            setattr(place, name, wrapper)
