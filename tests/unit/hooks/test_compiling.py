"""The phase of a rank while torch compiles."""

from __future__ import annotations

import threading
from collections.abc import Callable

from holdfast.contract import page
from holdfast.contract.page import Phase
from holdfast.patches.compiling import Compilation
from holdfast.recording.recorder import Recorder


def elsewhere(call: Callable[[], None]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def phase(recorder: Recorder) -> Phase:
    return recorder.phase


def test_a_compilation_that_ends_in_another_thread_leaves_this_ones_phase_alone() -> None:
    recorder = Recorder(bytearray(page.PAGE_SIZE), attempt=0)
    recorder.enter(Phase.FORWARD)
    compilation = Compilation(recorder)
    elsewhere(compilation.start)
    assert phase(recorder) is Phase.FORWARD
    compilation.start()
    elsewhere(compilation.end)
    assert phase(recorder) is Phase.COMPILING
    compilation.end()
    assert phase(recorder) is Phase.FORWARD
