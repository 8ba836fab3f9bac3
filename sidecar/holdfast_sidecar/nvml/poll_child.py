"""The child that reads all GPUs on its rhythm and hands each reading over."""

from __future__ import annotations

import time
from dataclasses import replace

from holdfast_sidecar import precedence
from holdfast_sidecar.nvml import mouth, wire
from holdfast_sidecar.nvml.announcing import Announcing
from holdfast_sidecar.nvml.board import Board
from holdfast_sidecar.nvml.device import Devices, NvmlFailedError
from holdfast_sidecar.nvml.mouth import Mouth


def run(board: Board, say: Mouth, every_s: float) -> None:
    """Read until killed; ends where there is no driver, or it breaks: the next child begins anew,
    with whatever library lies there by then."""
    # It has work to do each second, and nobody waits for it: ranks come first.
    precedence.give_back()
    try:
        import pynvml
    except ImportError as error:
        say.say(mouth.ABSENT, str(error))
        return
    try:
        read_on(Devices(Announcing(pynvml, board)), board, say, every_s)
    except NvmlFailedError as error:
        say.say(mouth.FAILED, str(error))


def read_on(devices: Devices, board: Board, say: Mouth, every_s: float) -> None:
    """Read on the rhythm until there is no driver. Raises NvmlFailedError."""
    due_s = time.monotonic()
    while True:
        started_s = time.monotonic()
        reading = devices.read(started_s)
        took_s = time.monotonic() - started_s
        if not reading.is_present:
            say.say(mouth.ABSENT, "no library, or no driver")
            return
        board.alive()
        say.say(mouth.READING, wire.spell_reading(replace(reading, took_s=took_s)))
        # One that came late is not made up for: the next one is due a whole time after it.
        now_s = time.monotonic()
        due_s = max(due_s + every_s, now_s)
        time.sleep(due_s - now_s)
