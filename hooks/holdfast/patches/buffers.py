"""The buffers that DDP sends from rank 0 to all before a forward pass, running means of a batch
normalisation say: who waits for them there waits for rank 0, and does no work of its own.
"""

from __future__ import annotations

from typing import Any

from holdfast.contract.page import Phase
from holdfast.guard import Guard
from holdfast.patches.timed import entering, timed
from holdfast.recording.recorder import Recorder

SENDS = "_broadcast_coalesced"
"""Private; without it this wait counts as forward."""


def install(torch: Any, recorder: Recorder, guard: Guard) -> None:
    """Hook what DDP calls for it."""
    send = getattr(torch.distributed, SENDS, None)
    if send is None:
        return

    def leave(previous: Phase) -> None:
        since_ns = recorder.mark_ns
        recorder.enter(previous)
        recorder.wait_in(recorder.reducer_slot, recorder.mark_ns - since_ns)

    enter = entering(recorder, Phase.COMMUNICATING)
    setattr(torch.distributed, SENDS, timed(send, torch.compiler.is_compiling, guard, enter, leave))
