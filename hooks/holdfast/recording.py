"""What the three lines ask of the recorder, and its twin for a process that nobody watches."""

from __future__ import annotations

from typing import Protocol

from holdfast import process
from holdfast.page import Flag, Order, OrderKind, Phase, Reply, Word


class Recording(Protocol):
    """The rank page as the loop sees it: say what is done, hear what is asked."""

    answered: str
    """Identifier of the checkpoint order that was answered last."""

    def enter(self, phase: Phase, /) -> Phase:
        """From now on this phase; answers the one that was left."""

    def end_step(self, step: int, phase: Phase | None = None, /) -> None:
        """So many steps are completed; from now on this phase."""

    def report_loss(self, value: float, step: int | None = None, /) -> None:
        """Loss of the step that is being run."""

    def report_gradient(self, norm: float, step: int | None = None, /) -> None:
        """Norm of its gradients."""

    def report_work(self, tokens: float, squares: float, step: int | None = None, /) -> None:
        """Tokens of the step that is being run, and the sum of its sequences' lengths squared."""

    def order(self, kind: OrderKind, /) -> Order | None:
        """Newest order of this kind, if there is one."""

    def reply(self, reply: Reply, kind: OrderKind = OrderKind.CHECKPOINT, /) -> None:
        """Answer an order of this kind."""

    def set_word(self, word: Word, value: int, /) -> None:
        """Store one word."""

    def word(self, word: Word, /) -> int:
        """Load one word."""

    def add_flag(self, flag: Flag, /) -> None:
        """Say a fact about this process."""

    def note_trace(self) -> None:
        """Say that a profiler has to do with the step that is run."""


class Unwatched:
    """A process without Holdfast around it: nothing is recorded, nothing is asked."""

    answered = ""

    def enter(self, phase: Phase, /) -> Phase:
        """Nobody looks."""
        return phase

    def end_step(self, step: int, phase: Phase | None = None, /) -> None:
        """Nobody counts."""

    def report_loss(self, value: float, step: int | None = None, /) -> None:
        """Nobody listens."""

    def report_gradient(self, norm: float, step: int | None = None, /) -> None:
        """Nobody listens."""

    def report_work(self, tokens: float, squares: float, step: int | None = None, /) -> None:
        """Nobody counts."""

    def order(self, kind: OrderKind, /) -> Order | None:
        """Nobody asks."""
        return None

    def reply(self, reply: Reply, kind: OrderKind = OrderKind.CHECKPOINT, /) -> None:
        """Nobody waits."""

    def set_word(self, word: Word, value: int, /) -> None:
        """Kept nowhere."""

    def word(self, word: Word, /) -> int:
        """Every word is 0."""
        return 0

    def add_flag(self, flag: Flag, /) -> None:
        """Kept nowhere."""

    def note_trace(self) -> None:
        """Nobody looks."""


def recording() -> Recording:
    """This process's recorder, or the twin when it has none."""
    return process.current() or Unwatched()


def count_error(recording: Recording) -> None:
    """One more error of ours that training did not notice."""
    recording.set_word(Word.HOOK_ERRORS, recording.word(Word.HOOK_ERRORS) + 1)
