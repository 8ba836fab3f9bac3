"""Parts of a step by the device's own clock: events at the borders of phases, read once complete.

The host runs ahead of a GPU, so its clock says little of what the GPU did. Nothing here ever waits
for the device: an event is asked whether it is complete at the end of a later step, and read then.
While a stream is captured into a CUDA graph nothing is recorded and nothing asked. Steps are
sampled, as many as keep the price small; the price is measured as it is paid.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from holdfast.contract.page import Phase
from holdfast.guard import Guard
from holdfast.recording.recorder import Recorder

FIRST = 6
"""The first step that may be timed: kernels are loaded and one step is counted by then."""

MARKS = 64
"""Events of one sample. A step with more borders is not timed: its price would be as unusual."""

SAMPLES = 4
"""Samples that may be under way: so far behind the host may the device be without a loss."""

ALLOWED_NS = 2_500
"""Per step and on average. What the hooks pay on a CPU takes about 7 of the 10 us that a step's
anatomy may cost. By published figures an event takes 1 to 2 us to record and about half of that to
read: with eight borders, one short step in eight is sampled."""

ALLOWED_SHARE = 0.001
"""Of longer steps: half of what all of Holdfast may take from a step's throughput, and so much that
every tenth of a second is looked into, as often as ranks are compared."""

MOST_EVERY = 64

_LEFT_OUT = 6
_PARTS = {
    Phase.TRANSFERRING: 0,
    Phase.FORWARD: 1,
    Phase.BACKWARD: 2,
    Phase.COMMUNICATING: 3,
    Phase.OPTIMIZER: 4,
    Phase.SAVING: _LEFT_OUT,
    Phase.EVALUATING: _LEFT_OUT,
    Phase.COMPILING: _LEFT_OUT,
    Phase.RESTORING: _LEFT_OUT,
    Phase.STARTING: _LEFT_OUT,
}
_PART_OF = tuple(_PARTS.get(phase, 5) for phase in Phase)
"""Phase -> place in `Record.device_us`; what is no part of a training step has none."""


class _Sample:
    """The borders of one step, and the part that begins at each."""

    def __init__(self, cuda: Any, step: int) -> None:
        self.events = [cuda.Event(enable_timing=True) for _ in range(MARKS)]
        self.parts = [0] * MARKS
        self.count = 0
        self.step = step
        self.price_ns = 0

    def record(self, part: int, stream: Any) -> None:
        """A part begins where the stream is now."""
        self.events[self.count].record(stream)
        self.parts[self.count] = part
        self.count += 1

    @property
    def is_complete(self) -> bool:
        """Whether the device has passed all of it; they lie in one stream."""
        return bool(self.events[self.count - 1].query())

    def read(self) -> tuple[int, ...]:
        """Microseconds of each part, and of what is none."""
        spent_ms = [0.0] * (_LEFT_OUT + 1)
        for number in range(self.count - 1):
            begin, end = self.events[number], self.events[number + 1]
            spent_ms[self.parts[number]] += begin.elapsed_time(end)
        return tuple(round(each * 1000) for each in spent_ms)


def every_so_many(price_ns: int, step_us: float) -> int:
    """How seldom steps are to be sampled of which one costs so much and takes so long."""
    allowed_ns, every = max(ALLOWED_NS, step_us * 1000 * ALLOWED_SHARE), 1
    while every < MOST_EVERY and price_ns > allowed_ns * every:
        every *= 2
    return every


class DevicePhases:
    """Told of the ends of steps, and of the phases of those that it times."""

    def __init__(
        self,
        cuda: Any,
        recorder: Recorder,
        guard: Guard,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._cuda = cuda
        self._recorder = recorder
        self._clock = clock
        self._on_phase = guard.wrap("device phases", self._mark, None)
        self._stream: Any = None
        self._sample: _Sample | None = None
        self._free: list[_Sample] = []
        self._made = 0
        self._under_way: deque[_Sample] = deque()
        self._part = _LEFT_OUT
        self._ended = 0
        self._step = 0
        self.every = 8
        """Steps are timed whose number is a multiple of this power of two: the same on all ranks,
        or at least some of them."""

    def end_step(self, step: int) -> bool:
        """A step ends; False: this rank does not train on such a device."""
        self._step = step
        self._ended += 1
        is_due = not (step + 1) % self.every and self._ended >= FIRST - 1
        if self._sample is None and not self._under_way and not is_due:
            return True
        if not self._cuda.is_initialized():
            return False
        if self._cuda.is_current_stream_capturing():
            self._drop()
            return True
        if self._sample is not None:
            self._close(self._sample)
        if self._under_way:
            self._read(self._under_way[0])
        if is_due and self._recorder.on_phase is None:
            self._begin()
        return True

    def _begin(self) -> None:
        began = self._clock()
        stream = self._cuda.current_stream()
        if self._stream is None or stream.device != self._stream.device:
            self._forget()  # an event belongs to the device on which it was first recorded
        self._stream = stream
        if self._free:
            sample = self._free.pop()
        elif self._made < SAMPLES:
            sample = _Sample(self._cuda, 0)
            self._made += 1
        else:
            return  # the device is far behind: the next step, perhaps
        sample.step, sample.count = self._step + 1, 0
        self._sample = sample
        self._part = _PART_OF[self._recorder.phase]
        sample.record(self._part, stream)
        self._recorder.on_phase = self._on_phase
        sample.price_ns = self._clock() - began

    def _mark(self, phase: Phase) -> None:
        part, sample = _PART_OF[phase], self._sample
        if part == self._part or sample is None:
            return
        began = self._clock()
        if sample.count >= MARKS - 1 or self._cuda.is_current_stream_capturing():
            self._drop()
            return
        self._part = part
        sample.record(part, self._stream)
        sample.price_ns += self._clock() - began

    def _close(self, sample: _Sample) -> None:
        if not self._recorder.is_measured:
            # What its backward passes waited for was not looked for, and would pass for own work.
            self._drop()
            self.every = min(2 * self.every, MOST_EVERY)
            return
        began = self._clock()
        sample.record(_LEFT_OUT, self._stream)
        sample.price_ns += self._clock() - began
        self._under_way.append(sample)
        self._stop()

    def _drop(self) -> None:
        if self._sample is not None:
            self._free.append(self._sample)
        self._stop()

    def _stop(self) -> None:
        self._sample = None
        if self._recorder.on_phase is self._on_phase:
            self._recorder.on_phase = None

    def _read(self, sample: _Sample) -> None:
        began = self._clock()
        lag = self._step - sample.step
        if lag < 1 or not sample.is_complete:
            return
        spent_us = sample.read()
        self._recorder.note_device(spent_us[:_LEFT_OUT], lag)
        self._under_way.popleft()
        self._free.append(sample)
        self.every = every_so_many(sample.price_ns + self._clock() - began, sum(spent_us))

    def _forget(self) -> None:
        self._free.clear()
        self._under_way.clear()
        self._made = 0
