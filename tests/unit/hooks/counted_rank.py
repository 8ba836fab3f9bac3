"""A rank of this process whose steps are counted: whatever a test does between two ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from holdfast import page
from holdfast.counted_step import COUNTED, CountedStep
from holdfast.guard import Guard
from holdfast.page import Phase, Word, bits_float
from holdfast.recorder import Recorder


class Rank:
    """A rank of this process: its steps are whatever the test does between two of their ends."""

    def __init__(self, **environ: str) -> None:
        self.errors = 0
        self.recorder = Recorder(bytearray(page.PAGE_SIZE), attempt=0)
        self.counted = CountedStep(torch, self.recorder, Guard(self._err), environ)
        self.listens = True

    def _err(self) -> None:
        self.errors += 1

    def end_step(self) -> None:
        if self.listens:
            self.listens = self.counted.end_step()
        self.recorder.end_step(self.recorder.word(Word.STEP) + 1)

    def train(self, step: Callable[[], None], steps: int = COUNTED) -> None:
        for _ in range(steps):
            self.recorder.add_backward()
            step()
            self.end_step()

    def told(self, word: Word = Word.MODEL_FLOPS) -> float:
        return bits_float(self.recorder.word(word))

    @contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        before = self.recorder.enter(phase)
        yield
        self.recorder.enter(before)
