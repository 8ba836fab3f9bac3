"""What the script saves by itself: `torch.save` and torch's distributed checkpoints, as a phase.

Of an asynchronous save only what the loop is kept by.
"""

from __future__ import annotations

import sys
from typing import Any

from holdfast.contract.page import Phase
from holdfast.guard import Guard
from holdfast.patches.names import Function, replace
from holdfast.patches.timed import entering, leaving, timed
from holdfast.rank import importing
from holdfast.recording.recorder import Recorder

DISTRIBUTED = "torch.distributed.checkpoint"
SAVER = "torch.distributed.checkpoint.state_dict_saver"
NAMES = ("save", "async_save", "save_state_dict")


def install(torch: Any, recorder: Recorder, guard: Guard) -> None:
    """Hook what saves, under each name by which scripts import it; the rest once it is imported."""
    enter, leave = entering(recorder, Phase.SAVING), leaving(recorder)

    def wrap(function: Function) -> Function:
        return timed(function, torch.compiler.is_compiling, guard, enter, leave)

    def hook_distributed() -> None:
        for name in NAMES:
            replace(name, (sys.modules[SAVER], sys.modules[DISTRIBUTED]), wrap)

    replace("save", (torch.serialization, torch), wrap)
    importing.once(DISTRIBUTED, lambda: guard.run("saves", hook_distributed))
