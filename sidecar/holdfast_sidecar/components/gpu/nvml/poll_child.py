"""The child that reads all GPUs on its rhythm and hands each reading over."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from types import ModuleType

from holdfast_sidecar.components.gpu.nvml import child_io
from holdfast_sidecar.components.gpu.nvml.child_io import FrameWriter, SharedStatus
from holdfast_sidecar.components.gpu.nvml.device import Devices, NvmlDriverError
from holdfast_sidecar.components.gpu.nvml.query import Announcing
from holdfast_sidecar.components.gpu.nvml.wire import Speller
from holdfast_sidecar.linux import threads


def run(board: SharedStatus, say: FrameWriter, every_s: float) -> None:
    """Read until killed; ends where there is no driver, or it breaks: the next child begins anew,
    with whatever library lies there by then."""
    # It has work to do each second, and nobody waits for it: ranks come first.
    threads.give_back()
    try:
        pynvml = load_binding()
    except ImportError as error:
        say.say(child_io.ABSENT, str(error))
        return
    try:
        read_on(Devices(Announcing(pynvml, board)), board, say, every_s)
    except NvmlDriverError as error:
        say.say(child_io.FAILED, str(error))


def load_binding() -> ModuleType:
    """nvidia-ml-py, without what it would ask only on Windows: ctypes.util brings tempfile, shutil
    and subprocess, a MiB that would stay for ever. Raises ImportError."""
    util = ModuleType("ctypes.util")
    util.find_library = None  # type: ignore[attr-defined]
    sys.modules.setdefault("ctypes.util", util)
    import pynvml

    binding: ModuleType = pynvml
    return binding


def read_on(devices: Devices, board: SharedStatus, say: FrameWriter, every_s: float) -> None:
    """Read on the rhythm until there is no driver. Raises NvmlFailedError."""
    speller = Speller()
    due_s = time.monotonic()
    while True:
        started_s = time.monotonic()
        reading = devices.read(started_s)
        took_s = time.monotonic() - started_s
        if not reading.is_present:
            say.say(child_io.ABSENT, "no library, or no driver")
            return
        board.alive()
        say.say(*speller.spell(replace(reading, took_s=took_s)))
        # One that came late is not made up for: the next one is due a whole time after it.
        now_s = time.monotonic()
        due_s = max(due_s + every_s, now_s)
        time.sleep(due_s - now_s)
