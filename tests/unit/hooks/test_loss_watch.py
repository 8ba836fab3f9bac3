"""Which losses and gradient norms are read, and how one from a GPU arrives late; the GPU is a
stand-in."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.contract import page
from holdfast.contract.page import Word
from holdfast.patches.gradients import GradientWatch
from holdfast.patches.loss import LossWatch
from holdfast.recording.recorder import Recorder


class Tensor:
    """As much of a tensor as is asked for."""

    def __init__(self, value: complex, device: str = "cpu", numel: int = 1, real: bool = True):
        self.value, self.count, self.real = value, numel, real
        self.device = device
        self.is_cpu, self.is_cuda = device == "cpu", device.startswith("cuda")

    def numel(self) -> int:
        return self.count

    def is_floating_point(self) -> bool:
        return self.real

    def item(self) -> complex:
        assert self.is_cpu, "reading from a GPU would wait for it"
        return self.value

    def detach(self) -> Tensor:
        return self

    def reshape(self, *_: int) -> Tensor:
        return self


class Gpu:
    """Copies arrive only when the test says so."""

    def __init__(self) -> None:
        self.complete = 0
        self.recorded = 0
        self.capturing = False
        self.current = "cuda"
        self.touched: set[str] = set()
        outer = self

        class Event:
            def record(self) -> None:
                outer.touched.add(outer.current)
                outer.recorded += 1
                self.number = outer.recorded

            def query(self) -> bool:
                return self.number <= outer.complete

        class Numbers:
            def __init__(self, count: int) -> None:
                self.values: list[complex] = [0.0] * count

            def __getitem__(self, key: Any) -> Any:
                if not isinstance(key, slice):
                    return self.values[key]

                def copy(tensor: Tensor, *, non_blocking: bool) -> None:
                    assert non_blocking
                    self.values[key.start] = tensor.value

                return SimpleNamespace(copy_=copy)

        self.torch = SimpleNamespace(
            Tensor=Tensor,
            no_grad=contextlib.nullcontext,
            float32="float32",
            cuda=SimpleNamespace(
                Event=Event, device=self.on, is_current_stream_capturing=self.is_capturing
            ),
            zeros=lambda count, **_: Numbers(count),
        )

    def is_capturing(self) -> bool:
        self.touched.add(self.current)
        return self.capturing

    @contextlib.contextmanager
    def on(self, device: str) -> Iterator[None]:
        before, self.current = self.current, device
        yield
        self.current = before


@pytest.fixture
def recorder() -> Recorder:
    return Recorder(bytearray(page.PAGE_SIZE), attempt=0)


@pytest.fixture
def gpu() -> Gpu:
    return Gpu()


@pytest.fixture
def watch(gpu: Gpu, recorder: Recorder) -> LossWatch:
    return LossWatch(gpu.torch, recorder)


def seen(recorder: Recorder) -> float:
    return page.bits_float(recorder.word(Word.LOSS_BITS))


def test_a_loss_on_the_cpu_is_read_at_once(watch: LossWatch, recorder: Recorder) -> None:
    watch.look((Tensor(0.25),))
    assert seen(recorder) == 0.25


class Subclass(Tensor):
    """A tensor whose reading might communicate."""


@pytest.mark.parametrize(
    "root",
    [Tensor(9.0, numel=2), Tensor(9j), Tensor(9.0, "mps"), Subclass(9.0), None, [1]],
)
def test_what_is_not_plainly_a_loss_is_left_alone(
    watch: LossWatch, recorder: Recorder, root: object
) -> None:
    watch.look((root,))
    watch.look(())
    assert recorder.word(Word.LOSS_STEP) == 0


def test_a_loss_on_a_gpu_is_reported_for_its_own_step_once_it_has_arrived(
    watch: LossWatch, recorder: Recorder, gpu: Gpu
) -> None:
    watch.look((Tensor(1.0, "cuda"),))
    recorder.end_step(1)
    watch.look((Tensor(2.0, "cuda"),))
    assert recorder.word(Word.LOSS_STEP) == 0
    gpu.complete = 1
    recorder.end_step(2)
    watch.look((Tensor(3.0, "cuda"),))
    assert (seen(recorder), recorder.word(Word.LOSS_STEP)) == (1.0, 1)
    gpu.complete = 3
    recorder.end_step(3)
    watch.look((Tensor(4.0, "cuda"),))
    assert (seen(recorder), recorder.word(Word.LOSS_STEP)) == (3.0, 3)


def test_only_the_gpu_that_holds_the_loss_is_touched(watch: LossWatch, gpu: Gpu) -> None:
    watch.look((Tensor(1.0, "cuda:1"),))
    assert (gpu.recorded, gpu.touched, gpu.current) == (1, {"cuda:1"}, "cuda")


def test_when_the_gpu_is_far_behind_losses_are_left_out_and_nothing_is_overwritten(
    watch: LossWatch, recorder: Recorder, gpu: Gpu
) -> None:
    for value in range(1, 21):
        watch.look((Tensor(float(value), "cuda"),))
    gpu.complete = 8
    watch.look((Tensor(99.0, "cuda"),))
    assert seen(recorder) == 8.0
    gpu.complete = 9
    watch.look((Tensor(100.0, "cuda"),))
    assert seen(recorder) == 99.0


def test_while_a_graph_is_captured_the_stream_is_left_alone(watch: LossWatch, gpu: Gpu) -> None:
    gpu.capturing = True
    watch.look((Tensor(1.0, "cuda"),))
    assert gpu.recorded == 0


def test_once_the_script_reports_its_loss_none_is_read(
    watch: LossWatch, recorder: Recorder, gpu: Gpu
) -> None:
    recorder.report_loss(7.0)
    watch.look((Tensor(1.0, "cuda"),))
    watch.look((Tensor(1.0),))
    assert (gpu.recorded, seen(recorder)) == (0, 7.0)


class Sharded:
    """A norm of gradients that lie in several processes; `full_tensor` would be a collective."""

    def __init__(self, part: Tensor) -> None:
        self.part = part

    def to_local(self) -> Tensor:
        return self.part


@pytest.fixture
def norms(gpu: Gpu, recorder: Recorder) -> GradientWatch:
    return GradientWatch(gpu.torch, recorder)


def seen_norm(recorder: Recorder) -> float:
    return page.bits_float(recorder.word(Word.GRADIENT_BITS))


def test_a_gradient_norm_is_read_at_once_from_the_cpu_and_late_from_a_gpu(
    norms: GradientWatch, recorder: Recorder, gpu: Gpu
) -> None:
    norms.look(Tensor(0.25))
    assert seen_norm(recorder) == 0.25
    recorder.end_step(1)
    norms.look(Tensor(3.0, "cuda"))
    assert recorder.word(Word.GRADIENT_STEP) == 1
    recorder.end_step(2)
    gpu.complete = 1
    norms.look(Tensor(4.0, "cuda"))
    assert (seen_norm(recorder), recorder.word(Word.GRADIENT_STEP)) == (3.0, 2)


def test_an_overflow_that_arrives_late_was_still_the_scalers(
    norms: GradientWatch, recorder: Recorder, gpu: Gpu
) -> None:
    for step in (1, 2):
        recorder.scale()
        norms.look(Tensor(float("inf"), "cuda"))
        recorder.end_step(step)
    gpu.complete = 2
    recorder.scale()
    norms.look(Tensor(1.0, "cuda"))
    assert recorder.word(Word.SCALER_SKIPS) == 2
    assert recorder.word(Word.NONFINITE_GRADIENTS) == 0


def test_of_sharded_gradients_the_part_in_this_process_is_read(
    norms: GradientWatch, recorder: Recorder
) -> None:
    norms.look(Sharded(Tensor(0.5)))
    assert seen_norm(recorder) == 0.5


@pytest.mark.parametrize("norm", [None, 1.0, Tensor(9.0, numel=2), Tensor(9.0, "mps")])
def test_what_is_not_plainly_a_norm_is_left_alone(
    norms: GradientWatch, recorder: Recorder, norm: object
) -> None:
    norms.look(norm)
    assert recorder.word(Word.GRADIENT_STEP) == 0


def test_another_thread_than_the_one_that_trains_is_left_alone(
    norms: GradientWatch, recorder: Recorder
) -> None:
    recorder.thread += 1
    norms.look(Tensor(0.5))
    assert recorder.word(Word.GRADIENT_STEP) == 0


def test_once_the_script_reports_its_norm_none_is_read(
    norms: GradientWatch, recorder: Recorder
) -> None:
    recorder.report_gradient(7.0)
    norms.look(Tensor(1.0))
    assert seen_norm(recorder) == 7.0
