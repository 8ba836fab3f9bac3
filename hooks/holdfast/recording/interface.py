"""What the three lines ask of the recorder, and its twin for a process that nobody watches."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from holdfast.contract.page import Flag, Order, OrderKind, Phase, Reply, Word
from holdfast.rank import process


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

    def note_flops_per_token(self, flops: float, /) -> None:
        """Say how many operations a token takes this rank to train on."""

    def note_trace(self) -> None:
        """Say that a profiler has to do with the step that is run."""

    def expect_steps_of(self, owners: Iterable[Any], /) -> None:
        """Say whose gradients are saved nowhere, so that none must wait at a boundary."""

    def gradients_wait(self, is_turn: bool = True, /) -> bool:
        """Whether some do; asked once a turn of the loop, at its end, and as a loop begins."""

    def say_unrestorable(self, reasons: list[str], /) -> None:
        """Say what of the state could not be restored."""


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

    def note_flops_per_token(self, flops: float, /) -> None:
        """Nobody computes."""

    def note_trace(self) -> None:
        """Nobody looks."""

    def expect_steps_of(self, owners: Iterable[Any], /) -> None:
        """Nothing is saved."""

    def gradients_wait(self, is_turn: bool = True, /) -> bool:
        """Nobody asks."""
        return False

    def say_unrestorable(self, reasons: list[str], /) -> None:
        """Nobody hears it."""


def recording() -> Recording:
    """This process's recorder, or the twin when it has none."""
    return process.current() or Unwatched()


@contextlib.contextmanager
def busy(what: str = "busy") -> Iterator[None]:
    """Say what this rank does for as long as the block lasts: `with holdfast.busy("rollout"):`.

    It is shown by that name (of which the first 32 bytes are kept). However long it lasts, nobody
    suspects it to hang meanwhile, nor those that wait for it. Blocks may lie within each other: the
    innermost is shown. Without Holdfast around the process, and in other threads than the one that
    trains, it does nothing.
    """
    recorder = process.current()
    if recorder is None or recorder.thread != threading.get_ident():
        yield
        return
    before = recorder.begin_busy(what if isinstance(what, str) else type(what).__name__)
    try:
        yield
    finally:
        recorder.end_busy(before)


def count_error(recording: Recording) -> None:
    """One more error of ours that training did not notice."""
    recording.set_word(Word.HOOK_ERRORS, recording.word(Word.HOOK_ERRORS) + 1)
