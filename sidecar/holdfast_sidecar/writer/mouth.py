"""The writer's one way to speak: whole lines, from whichever thread."""

from __future__ import annotations

import threading
from typing import TextIO

from holdfast_sidecar.desk.questions import Reply, spell_reply


class Mouth:
    """Says replies, one a line."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def say(self, reply: Reply) -> None:
        """Say it at once; a sidecar that is gone hears nothing, and we end with it."""
        with self._lock:
            try:
                self._stream.write(spell_reply(reply) + "\n")
                self._stream.flush()
            except BrokenPipeError:
                pass
