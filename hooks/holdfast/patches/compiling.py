"""torch.compile at work: a phase that may last minutes, and the fact that its machinery is loaded.

`torch._dynamo.reset()` forgets the callbacks; compiling counts as forward from then on.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from holdfast.contract.page import Flag, Phase
from holdfast.guard import Guard
from holdfast.patches.timed import is_training
from holdfast.rank import importing
from holdfast.recording.recorder import Recorder


def install(torch: Any, recorder: Recorder, guard: Guard) -> None:
    """Hook the compiler once it is imported; many scripts never do (AdamW does it for them)."""

    importing.once(
        "torch._dynamo", lambda: guard.run("compiling", lambda: _listen(recorder, guard))
    )


def _listen(recorder: Recorder, guard: Guard) -> None:
    recorder.add_flag(Flag.DYNAMO_IMPORTED)
    dynamo = sys.modules["torch._dynamo"]
    if not hasattr(dynamo, "on_compile_start"):
        return
    compilation = Compilation(recorder)
    start, end = guard.pair("compiling", compilation.start, compilation.end)
    # Some versions of torch pass arguments to these, others don't.
    dynamo.on_compile_start(lambda *_: start())
    dynamo.on_compile_end(lambda *_: end())


class Compilation:
    """Remembers what compiling interrupted."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._interrupted: Phase | None = None
        self._thread = -1

    def start(self) -> None:
        """The compiler starts."""
        recorder = self._recorder
        if recorder.phase is not Phase.COMPILING and is_training(recorder):
            self._interrupted = recorder.enter(Phase.COMPILING)
            self._thread = threading.get_ident()

    def end(self) -> None:
        """The compiler has ended."""
        if self._interrupted is not None and threading.get_ident() == self._thread:
            self._recorder.enter(self._interrupted)
            self._interrupted = None
