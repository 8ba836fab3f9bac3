"""Asks a source again and again in a thread of its own, so that keys work while nobody answers."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Protocol

from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.top.latest import Latest
from holdfast_sidecar.top.sources import Away, Source


class Watching(Protocol):
    """What a screen needs to know of it."""

    @property
    def latest(self) -> Latest:
        """What is known by now."""


def look(source: Source, before: Latest, now_s: float) -> Latest:
    """What is known after asking once more."""
    try:
        return before.answered(source.read(), source.name)
    except (Away, BadInput) as error:
        return before.unanswered(str(error), now_s)


@dataclass
class Watch:
    """Between `start` and `stop`, `latest` is as new as the source allows."""

    source: Source
    every_s: float
    latest: Latest = field(default_factory=Latest)
    _stopped: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Begin to ask. The thread holds up nothing at the end: a source may take seconds."""
        threading.Thread(target=self._run, name="watch", daemon=True).start()

    def stop(self) -> None:
        """Ask no more."""
        self._stopped.set()

    def _run(self) -> None:
        if self.latest.view is not None:
            self._stopped.wait(self.every_s)  # it has just been asked
        while not self._stopped.is_set():
            self.latest = look(self.source, self.latest, time.monotonic())
            self._stopped.wait(self.every_s)
