"""Those who want to hear of every step that ends, until each has heard enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.guard import Guard
from holdfast.recording.recorder import Recorder

Listener = Callable[[int], bool]
"""Told which step ends, before its record is made; answers whether it wants to hear of the next."""


class StepEnds:
    """Tells them. When nobody listens any more, a step pays nothing for it."""

    def __init__(
        self, recorder: Recorder, guard: Guard, listeners: Sequence[tuple[str, Listener]]
    ) -> None:
        self._recorder = recorder
        self._listeners = [guard.wrap(name, listener, False) for name, listener in listeners]

    def start(self) -> None:
        """Listen from now on."""
        self._recorder.on_step = self._tell

    def _tell(self, step: int) -> None:
        for listener in tuple(self._listeners):
            if not listener(step):
                self._listeners.remove(listener)
        if not self._listeners:
            self._recorder.on_step = None
