"""What lies between an optimizer's step and the next batch."""

from __future__ import annotations

import pytest

from holdfast.contract import page
from holdfast.contract.page import Flag, Phase
from holdfast.patches.data import Fetches
from holdfast.patches.optimizer import OptimizerSteps
from holdfast.recording.recorder import Recorder

torch = pytest.importorskip("torch")


class Optimizer:
    """Anything that can be held weakly."""


MS = 1_000_000


class Clock:
    """Time that the test moves."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns

    def spend(self, ms: int) -> None:
        self.now_ns += ms * MS


class Training:
    """A script whose batches come from a loader."""

    def __init__(self, is_wrapped: bool) -> None:
        self.clock, self.memory = Clock(), bytearray(page.PAGE_SIZE)
        self.recorder = recorder = Recorder(self.memory, attempt=0, clock=self.clock)
        self.fetches = Fetches(torch, recorder, lambda batch: None)
        self.steps = OptimizerSteps(recorder)
        self.is_wrapped = is_wrapped
        if is_wrapped:
            recorder.add_flag(Flag.LOOP_WRAPPED)
        recorder.enter(Phase.FORWARD)

    def fetch(self) -> None:
        previous = self.fetches.begin()
        self.clock.spend(3)
        if previous is not None:
            self.fetches.end(previous, torch.zeros(1))

    def step(self, optimizer: Optimizer, between: int = 0) -> None:
        """Forward, backward, the optimizer, and what the script does then."""
        self.clock.spend(20)
        before = self.recorder.enter(Phase.BACKWARD)
        self.clock.spend(30)
        self.recorder.enter(before)
        self.steps.begin(optimizer)
        self.clock.spend(5)
        self.steps.end(optimizer)
        self.clock.spend(between)

    def parts(self, number: int) -> tuple[int, int, int]:
        """Of one step, milliseconds: data, forward, other."""
        record = dict(page.parse_records(bytes(self.memory), 0))[number]
        return record.data_us // 1000, record.forward_us // 1000, record.other_us // 1000


def test_what_a_script_does_between_a_step_and_the_next_batch_is_no_forward_pass() -> None:
    training, optimizer = Training(is_wrapped=False), Optimizer()
    for _ in range(3):
        training.fetch()
        training.step(optimizer, between=40)
    assert training.parts(2) == (3, 20, 40)


def test_in_a_wrapped_loop_neither_is_what_comes_before_it_ends_the_step() -> None:
    training, optimizer = Training(is_wrapped=True), Optimizer()
    for number in range(1, 4):
        training.recorder.enter(Phase.FORWARD)
        training.step(optimizer, between=40)
        training.recorder.end_step(number, Phase.DATA)
    assert training.parts(2) == (0, 20, 40)


def test_of_two_optimizers_the_second_ones_forward_pass_is_one() -> None:
    training, first, second = Training(is_wrapped=False), Optimizer(), Optimizer()
    for _ in range(3):
        training.fetch()
        training.step(first)
        training.step(second, between=40)
    assert training.parts(2) == (3, 40, 40)


def test_without_a_loader_all_of_it_may_be_the_forward_pass() -> None:
    training, optimizer = Training(is_wrapped=False), Optimizer()
    for _ in range(3):
        training.step(optimizer, between=40)
    assert training.parts(2) == (0, 60, 0)
