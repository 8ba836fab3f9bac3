"""The sidecar's end of a child's board, read whenever it likes: of a child that hangs or is gone,
too."""

from __future__ import annotations

import os
from dataclasses import dataclass

from holdfast_sidecar.nvml.board import LAYOUT


@dataclass(frozen=True)
class Note:
    """What stood on the board."""

    beats: int = 0
    at_s: float = 0.0
    """CLOCK_MONOTONIC."""
    asking: str = ""
    """What the child was about to ask; empty: nothing."""


def make_board() -> int:
    """Descriptor of a new board: memory without a name, which goes with its last user."""
    descriptor = os.memfd_create("holdfast-nvml", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, LAYOUT.size)
    return descriptor


def read_board(descriptor: int) -> Note:
    """What stands there. What is just being written may come out mixed: a text of two calls, or a
    count of two signs of life, which is one all the same."""
    content = os.pread(descriptor, LAYOUT.size, 0)
    if len(content) < LAYOUT.size:
        return Note()
    beats, at_s, text = LAYOUT.unpack(content)
    return Note(beats, at_s, text.rstrip(b"\0").decode(errors="replace"))
