"""A GPU in memory: what is launched takes its time one after the other, behind the host's back.

As strict as the real one: an event that is not complete has no time, while a graph is captured
nothing may be recorded or asked, and no one here may wait for the device.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

DEVICE = "cuda:0"


class Stream:
    def __init__(self, gpu: PretendCuda, device: str = DEVICE) -> None:
        self.gpu, self.device = gpu, device
        self.idle_at_us = 0.0

    def launch(self, us: float) -> None:
        """Something that takes so long, once what was launched before is done."""
        self.idle_at_us = max(self.idle_at_us, self.gpu.now_us) + us


class PretendCuda:
    """As much of `torch.cuda` as is asked for, and the hand that moves the host's clock."""

    def __init__(self) -> None:
        self.now_us = 0.0
        self.started = True
        self.is_capturing = False
        self.recorded = 0
        self.stream = Stream(self)
        self.counts: dict[str, Any] = {}
        self.counted = 0
        gpu = self

        class Event:
            def __init__(self, enable_timing: bool = False) -> None:
                self.timing, self.device = enable_timing, ""
                self.at_us: float | None = None

            def record(self, stream: Stream) -> None:
                assert not gpu.is_capturing, "it would become a part of the graph"
                assert self.device in ("", stream.device), "an event stays on its device"
                self.device = stream.device
                self.at_us = max(stream.idle_at_us, gpu.now_us)
                gpu.recorded += 1
                gpu.now_us += gpu.event_us

            def query(self) -> bool:
                assert not gpu.is_capturing, "operation not permitted when stream is capturing"
                return self.at_us is None or self.at_us <= gpu.now_us

            def elapsed_time(self, end: Event) -> float:
                assert not gpu.is_capturing, "operation not permitted when stream is capturing"
                if not self.timing or self.at_us is None or end.at_us is None:
                    raise ValueError("both events must be recorded, with timing")
                if not (self.query() and end.query()):
                    raise RuntimeError("CUDA error: device not ready")
                return (end.at_us - self.at_us) / 1000

            def synchronize(self) -> None:
                raise AssertionError("nobody may wait for the device")

        self.Event = Event
        self.event_us = 0.0

    def is_initialized(self) -> bool:
        return self.started

    def is_current_stream_capturing(self) -> bool:
        return self.is_capturing

    def current_stream(self) -> Stream:
        return self.stream

    def current_device(self) -> int:
        return 0

    def get_device_properties(self, index: int) -> Any:
        return SimpleNamespace(total_memory=80 * 2**30)

    def memory_stats_as_nested_dict(self, index: int) -> dict[str, Any]:
        self.counted += 1
        return self.counts

    def synchronize(self) -> None:
        raise AssertionError("nobody may wait for the device")

    def pass_time(self, us: float) -> None:
        self.now_us += us
