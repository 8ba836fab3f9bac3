"""What is learned at the ends of steps: the operations that one needs, and what a GPU's own clock
and its allocator say."""

from __future__ import annotations

from typing import Any

from holdfast.guard import Guard
from holdfast.recording.device_memory import DeviceMemory
from holdfast.recording.device_phases import DevicePhases
from holdfast.recording.recorder import Recorder
from holdfast.recording.step_ends import StepEnds
from holdfast.recording.step_flops import StepFlops


def install(torch: Any, recorder: Recorder, guard: Guard) -> None:
    """Listen to the ends of steps."""
    listeners = (
        ("flops", StepFlops(torch, recorder).end_step),
        ("device phases", DevicePhases(torch.cuda, recorder, guard).end_step),
        ("device memory", DeviceMemory(torch.cuda, recorder).end_step),
    )
    StepEnds(recorder, guard, listeners).start()
