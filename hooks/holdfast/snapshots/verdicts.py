"""Which snapshots exist: asked and told on the attempt's own store. Nobody waits here."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from holdfast.recording.placement import Placement
from holdfast.snapshots import retention
from holdfast.snapshots.retention import Known
from holdfast.state.agreement import Agreement, BoardLost

_AT_ONCE = 32
"""Old questions removed at a time: after a long pause there may be thousands, and each takes a
moment of the training."""


@dataclass
class Verdicts:
    """One rank's part in them. Every call may raise BoardLost."""

    place: Placement
    said_ready: bool = False
    """Whether the others count on this rank: from here on it tells which steps it leaves out."""
    _are_all_ready: bool = False
    _asked: deque[int] = field(default_factory=deque)
    """Steps with a question that this rank had a part in, down to the newest that exists."""
    _done: deque[int] = field(default_factory=deque)
    """Those that nobody will ask about any more, for this rank to remove."""

    def are_all_ready(self) -> bool:
        """Say that this rank's slots are ready; whether everybody's are.

        Before that no rank takes a snapshot: one that is not ready could not say which it missed,
        and the others would keep their slots for those.
        """
        if not self._are_all_ready:
            try:
                ready = self.place.board.add("snapshot/ready", int(not self.said_ready))
            except RuntimeError as error:
                raise BoardLost(str(error)) from error
            self.said_ready = True
            self._are_all_ready = ready >= self.place.world_size
        return self._are_all_ready

    def say_sealed(self, known: Known, step: int) -> Known:
        """This rank holds its part of that step. The last one to say so knows that it exists."""
        self._asked.append(step)
        verdict = self._question(step).say_yes()
        if verdict is None:
            return known
        known = self._note(known, step, verdict)
        if verdict:
            self._done.extend(self._forget_before(step))
            for _ in range(min(len(self._done), _AT_ONCE)):
                self._question(self._done.popleft()).forget()
        return known

    def ask(self, known: Known) -> Known:
        """Learn what has been decided."""
        for step in retention.undecided(known):
            verdict = self._question(step).verdict()
            if verdict is not None:
                known = self._note(known, step, verdict)
            if verdict:
                self._forget_before(step)
                break
        return known

    def is_void(self, step: int) -> bool:
        """Whether some rank will not have that step."""
        return self._question(step).verdict() is False

    def void(self, known: Known, step: int) -> Known:
        """This rank will not have that step, or waits no longer for those who don't."""
        if step not in self._asked:
            self._asked.append(step)
        return self._note(known, step, not self._question(step).void())

    def _note(self, known: Known, step: int, verdict: bool) -> Known:
        return retention.exists(known, step) if verdict else retention.is_void(known, step)

    def _forget_before(self, step: int) -> list[int]:
        old = [asked for asked in self._asked if asked < step]
        self._asked = deque(asked for asked in self._asked if asked >= step)
        return old

    def _question(self, step: int) -> Agreement:
        return self.place.agreement(f"snapshot/{step}")
