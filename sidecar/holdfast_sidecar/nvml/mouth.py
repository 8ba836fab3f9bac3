"""A child's words: one frame each, a word of what it is and then its content.

The standard library alone, and little of it: the children import this.
"""

from __future__ import annotations

import os

from holdfast_sidecar.nvml.framing import frame

READING = "reading"
"""All GPUs, as JSON."""
CHANGES = "changes"
"""What has changed of them since the reading before."""
EVENT = "event"
"""Wall clock, kind, data and PCI address (or -) of one event."""
LISTENING = "listening"
"""How many GPUs' events are waited for, and why not those of the others."""
ABSENT = "absent"
"""There is no library or no driver, and why it seems so; the child ends."""
FAILED = "failed"
"""The driver as a whole answers with an error; the child ends."""


class Mouth:
    """Writes to the pipe, and waits while it is full."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def say(self, word: str, content: str) -> None:
        """One whole frame. Raises BrokenPipeError when nobody listens any more."""
        left = memoryview(frame(f"{word} {content}".encode()))
        while left:
            left = left[os.write(self._descriptor, left) :]
