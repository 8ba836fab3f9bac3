"""What is learned at the ends of steps: the operations of one of them, and what a GPU's own clock
and its allocator say."""

from __future__ import annotations

from typing import Any

from holdfast.counted_step import CountedStep
from holdfast.guard import Guard
from holdfast.recorder import Recorder
from holdfast.step_ends import StepEnds


def install(torch: Any, recorder: Recorder, guard: Guard) -> None:
    """Listen to the ends of steps."""
    counted = CountedStep(torch, recorder, guard)
    StepEnds(recorder, guard, (("flops", counted.end_step),)).start()
