"""Which step's operations are counted, and the words that say how many they are.

One step of an attempt, after what only its first ones do: caches fill, DDP makes its buckets anew,
compilers compile. While it runs, every operation passes through Python once more, so it takes about
as long as a slow step; nothing else ever pays. The script may say its number itself.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from holdfast import environment, exit_code
from holdfast.counting_mark import CountingMark
from holdfast.device_peaks import HALF, kind_of, peak_flops
from holdfast.guard import Guard
from holdfast.mode_stack import ModeStack
from holdfast.page import Ending, Phase, Word, float_bits
from holdfast.recorder import Recorder
from holdfast.recording import Recording
from holdfast.said_numbers import read_number

if TYPE_CHECKING:
    from holdfast.flops import FlopCount

log = logging.getLogger(__name__)

COUNTED = 4
"""The first step that may be counted: DDP is settled by the third, and so are lazy states."""

TRIES = 8
"""Steps that turn out not to be ordinary until none is counted: a script that evaluates after every
step, say, or that keeps a mode of its own open over their ends. The first few are neighbours, the
others ever farther apart: what is compiled for each new shape is compiled by the hundredth step."""

_NOT_TRAINING = frozenset({Phase.EVALUATING, Phase.IDLE, Phase.RESTORING, Phase.FINISHED})


def apart(tries: int) -> int:
    """Steps from the last of so many tries to the next one."""
    return int(4 ** max(0, tries - 3))


class CountedStep:
    """Told of the ends of steps until one is counted."""

    def __init__(
        self,
        torch: Any,
        recorder: Recorder,
        guard: Guard,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._torch = torch
        self._recorder = recorder
        self._guard = guard
        self._on_phase = guard.wrap("flops", self.enter, None)
        self._environ = environ
        self._modes = ModeStack(torch)
        self._ended = 0
        self._tries = 0
        self._backwards = 0
        self._count: FlopCount | None = None
        self._is_done = False
        self._next = COUNTED - 1
        self._reason = ""
        self._stop_listening: Callable[[], None] = lambda: None
        self._mark = CountingMark(environ)
        atexit.register(guard.wrap("mark of counting", self._end, None))
        os.register_at_fork(after_in_child=self._stop_in_child)

    def end_step(self, _: int = 0) -> bool:
        """A step ends; False: there is nothing more to count, and nothing left to put away."""
        self._ended += 1
        usual, self._backwards = self._backwards, self._recorder.backwards
        if self._count is not None:
            self._judge(self._count, usual)
            if not self._stop():
                return True
            self._count = None
        if self._is_done:
            return False
        if self._tries >= TRIES:
            self._give_up(self._reason or "none of those that were tried was an ordinary one")
            return False
        if self._ended < self._next:
            return True
        if not self._tries and (self._is_said() or not self._modes.is_usable):
            return False
        if not self._tries and self._mark.was_left():
            self._give_up("an earlier attempt ended in the step in which they were")
            return False
        self._tries += 1
        self._next = self._ended + apart(self._tries)
        self._begin()
        return True

    def enter(self, phase: Phase) -> None:
        """A phase begins. What is no training ends the counting, and this step's is void."""
        # The step is as slow as the counting makes it: its parts are nobody's measure.
        self._recorder.is_measured = False
        if self._count is None:
            return
        if phase is Phase.COMPILING:
            # It must come out as it would, and what it tries out is no training. The mode stays
            # where it is: torch puts back what the compiler found when it began.
            self._count.let_be("torch traced or compiled in it")
        elif phase in _NOT_TRAINING:
            self._count.let_be("there is more than training in it")
            self._stop()

    def _is_said(self) -> bool:
        """Whether nothing is to be counted: it is switched off, or the number is known."""
        said = read_number(self._environ, environment.FLOPS)
        if said is not None and not self._recorder.word(Word.MODEL_FLOPS):
            tell_flops(self._recorder, said)
        told = bool(self._recorder.word(Word.MODEL_FLOPS))
        if told:
            cuda = self._torch.cuda
            device = self._torch.device("cuda") if cuda.is_initialized() else None
            self._tell_peak(device, HALF)
        return told or said == 0

    def _begin(self) -> None:
        previous = self._recorder.enter(Phase.COMPILING)  # torch's formulas are loaded: no work
        try:
            from holdfast.flops import FlopCount

            count = FlopCount(self._torch, lambda: self._recorder.phase)
        finally:
            self._recorder.enter(previous)
        # The mode comes last of what may fail: nobody would take it off again.
        stop_listening = _listen_for_replays(self._torch, count)
        if not self._modes.put(count):
            stop_listening()
            return
        self._mark.put()
        self._count, self._stop_listening = count, stop_listening
        self._recorder.on_phase = self._on_phase

    def _judge(self, count: FlopCount, usual: int) -> None:
        """Tell what was counted, of a step that was whole. One that a loss scaler passes over is no
        step: what was computed for it would count for the next one, whose backward passes show it.
        """
        if not count.is_over and count.is_lopsided:
            count.let_be("its forward pass ran where it can't be seen")
        is_whole = not count.is_over and self._recorder.backwards == usual
        count.is_over = True
        self._reason = count.reason
        if count.failure and not self._is_done:
            self._give_up(count.failure)
        elif is_whole:
            self._is_done = True
            tell_flops(self._recorder, count.model, count.hardware)
            if count.by_kind:
                kind, device = max(count.by_kind, key=count.by_kind.__getitem__)
                # Whatever this comes to, counting has to end after it.
                self._guard.run(
                    "peak of the device",
                    lambda: self._tell_peak(device, kind_of(self._torch, kind)),
                )

    def _give_up(self, why: str) -> None:
        self._is_done = True
        log.warning("holdfast: the operations of a step are not counted: %s", why)

    def _stop(self) -> bool:
        """Leave training as it was; False: not all of it yet, and what is left lets all pass."""
        if self._recorder.on_phase is self._on_phase:
            self._recorder.on_phase = None
        self._stop_listening()
        self._stop_listening = lambda: None
        is_off = self._modes.take_off()
        if is_off:
            self._mark.remove()
        return is_off

    def _stop_in_child(self) -> None:
        self._mark.forget()
        self._stop()

    def _end(self) -> None:
        failed = self._recorder.word(Word.ENDING) == Ending.EXCEPTION
        self._mark.end(failed or not exit_code.is_clean())

    def _tell_peak(self, device: Any, kind: str) -> None:
        said = read_number(self._environ, environment.PEAK_FLOPS)
        name = ""
        if not said and device is not None and device.type == "cuda":
            name = self._torch.cuda.get_device_name(device)
        self._recorder.set_word(Word.PEAK_FLOPS, float_bits(said or peak_flops(name, kind)))


def tell_flops(recorder: Recording, model: float, hardware: float | None = None) -> None:
    """So many operations has one step of this rank; what is no such number is not told."""
    hardware = model if hardware is None else hardware
    if 0 < model <= hardware < float("inf"):
        recorder.set_word(Word.MODEL_FLOPS, float_bits(model))
        recorder.set_word(Word.HARDWARE_FLOPS, float_bits(hardware))


def _listen_for_replays(torch: Any, count: FlopCount) -> Callable[[], None]:
    """Notice a CUDA graph that is replayed, whose operations nobody sees; answers how to stop."""
    graph = getattr(torch.cuda, "CUDAGraph", None)
    replay = getattr(graph, "replay", None)
    if graph is None or replay is None:
        return lambda: None

    @functools.wraps(replay)
    def wrapper(self: Any) -> Any:
        count.is_over = True
        count.failure = "a CUDA graph was replayed, and what is in it can't be seen"
        return replay(self)

    def stop() -> None:
        if graph.replay is wrapper:
            graph.replay = replay

    graph.replay = wrapper
    return stop
