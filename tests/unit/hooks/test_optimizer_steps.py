"""Which calls of which optimizer make a step."""

from __future__ import annotations

import gc
import threading

import pytest

from holdfast.contract import page
from holdfast.contract.page import Flag, Phase, Word
from holdfast.patches.optimizer import PATIENCE, OptimizerSteps
from holdfast.recording.recorder import Recorder


class Optimizer:
    """Anything that can be held weakly."""


@pytest.fixture
def recorder() -> Recorder:
    return Recorder(bytearray(page.PAGE_SIZE), attempt=0)


def step(steps: OptimizerSteps, optimizer: Optimizer) -> None:
    steps.begin(optimizer)
    steps.end(optimizer)


def test_the_calls_of_the_first_seen_optimizer_are_the_steps(recorder: Recorder) -> None:
    steps, generator, discriminator = OptimizerSteps(recorder), Optimizer(), Optimizer()
    for _ in range(3):
        step(steps, generator)
        step(steps, discriminator)
        step(steps, discriminator)
    assert recorder.word(Word.STEP) == recorder.word(Word.OPTIMIZER_CALLS) == 3
    assert recorder.word(Word.PUBLISHED) == 3


@pytest.mark.parametrize(("is_wrapped", "steps"), [(False, 3), (True, 0)])
def test_an_optimizer_called_once_per_group_of_parameters_counts_each_call(
    recorder: Recorder, is_wrapped: bool, steps: int
) -> None:
    """As DeepSpeed's ZeRO does, which docs/configuration.md tells of."""
    if is_wrapped:
        recorder.add_flag(Flag.LOOP_WRAPPED)
    wrapped_by_zero = Optimizer()
    hooked = OptimizerSteps(recorder)
    for _group in range(3):
        step(hooked, wrapped_by_zero)
    assert recorder.word(Word.STEP) == steps


def test_when_the_first_optimizer_is_gone_the_next_one_takes_its_place(recorder: Recorder) -> None:
    steps, first, second = OptimizerSteps(recorder), Optimizer(), Optimizer()
    step(steps, first)
    del first
    gc.collect()
    step(steps, second)
    step(steps, second)
    assert recorder.word(Word.STEP) == 3


def test_in_a_wrapped_loop_the_loop_counts_steps_and_the_optimizer_only_its_calls(
    recorder: Recorder,
) -> None:
    steps, optimizer = OptimizerSteps(recorder), Optimizer()
    recorder.add_flag(Flag.LOOP_WRAPPED)
    step(steps, optimizer)
    assert recorder.word(Word.OPTIMIZER_CALLS) == 1
    assert recorder.word(Word.STEP) == recorder.word(Word.PUBLISHED) == 0


def phase_of(recorder: Recorder) -> Phase:
    """As it is now, whatever it was found to be before."""
    return recorder.phase


def test_an_optimizer_that_steps_another_one_inside_stays_in_its_phase(recorder: Recorder) -> None:
    steps, outer, inner = OptimizerSteps(recorder), Optimizer(), Optimizer()
    recorder.enter(Phase.FORWARD)
    steps.begin(outer)
    step(steps, inner)
    assert phase_of(recorder) is Phase.OPTIMIZER
    steps.end(outer)
    assert phase_of(recorder) is Phase.FORWARD
    assert recorder.word(Word.STEP) == 1


def test_after_the_optimizer_comes_what_was_before_but_never_the_start(recorder: Recorder) -> None:
    steps, optimizer = OptimizerSteps(recorder), Optimizer()
    assert phase_of(recorder) is Phase.STARTING
    step(steps, optimizer)
    assert phase_of(recorder) is Phase.FORWARD
    recorder.enter(Phase.BACKWARD)  # optimizers may be applied inside the backward pass
    step(steps, optimizer)
    assert recorder.phase is Phase.BACKWARD


def test_a_step_that_raised_does_not_confuse_the_next_one(recorder: Recorder) -> None:
    steps, optimizer = OptimizerSteps(recorder), Optimizer()
    recorder.enter(Phase.FORWARD)
    steps.begin(optimizer)
    step(steps, optimizer)
    assert recorder.phase is Phase.FORWARD
    assert recorder.word(Word.STEP) == 1


def test_an_optimizer_that_is_kept_but_never_steps_again_gives_its_place_up(
    recorder: Recorder,
) -> None:
    steps, first, second = OptimizerSteps(recorder), Optimizer(), Optimizer()
    step(steps, first)
    for _ in range(PATIENCE + 1):
        step(steps, second)
    assert recorder.word(Word.STEP) == 2
    step(steps, second)
    step(steps, first)
    assert recorder.word(Word.STEP) == 3


def test_one_optimizer_for_each_parameter_makes_a_step_where_the_first_of_them_does(
    recorder: Recorder,
) -> None:
    steps, optimizers = OptimizerSteps(recorder), [Optimizer() for _ in range(900)]
    for _ in range(3):
        for optimizer in optimizers:
            step(steps, optimizer)
    assert recorder.word(Word.STEP) == 3


def test_inside_a_backward_pass_an_optimizer_may_step_in_a_thread_of_the_engines(
    recorder: Recorder,
) -> None:
    steps, optimizer = OptimizerSteps(recorder), Optimizer()
    trains = recorder.thread
    for _ in range(2):
        recorder.enter(Phase.BACKWARD)
        engine = threading.Thread(target=step, args=(steps, optimizer))
        engine.start()
        engine.join()
        assert recorder.phase is Phase.BACKWARD
    assert recorder.thread == trains
    assert recorder.word(Word.STEP) == 2


def test_the_thread_that_steps_first_is_the_one_that_trains(recorder: Recorder) -> None:
    steps, optimizer = OptimizerSteps(recorder), Optimizer()
    trainer = threading.Thread(target=step, args=(steps, optimizer))
    trainer.start()
    identifier = trainer.ident
    trainer.join()
    assert recorder.thread == identifier
    recorder.thread = -1
    step(steps, optimizer)
    assert recorder.word(Word.STEP) == 1
