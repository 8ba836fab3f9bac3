"""Row `poll`: all GPUs as the sidecar's child reads them, once a second."""

from __future__ import annotations

import time

from bench.benchmark import Sample, Task
from bench.gpu_probe.library import started
from bench.gpu_probe.names import POLL
from holdfast_sidecar.components.gpu.nvml.device import Devices

POLLS = 60
QUICK_POLLS = 22
EVERY_S = 1.0
"""As the sidecar does; what is read every 10 s is read more than once."""


def measure(polls: int, every_s: float = EVERY_S) -> list[Sample]:
    """One sample per poll: wall clock and processor time, and how many GPUs were read."""
    devices = Devices(started())
    begun_s = time.monotonic()
    found = []
    for number in range(polls):
        time.sleep(max(0.0, begun_s + number * every_s - time.monotonic()))
        before_s, before_cpu_s = time.perf_counter(), time.process_time()
        reading = devices.read(time.monotonic())
        found.append(
            {
                "number": number,
                "took_s": round(time.perf_counter() - before_s, 9),
                "cpu_s": round(time.process_time() - before_cpu_s, 9),
                "gpus": len(reading.gpus),
                "lost": sum(bool(gpu.lost) for gpu in reading.gpus),
                "driver": reading.driver,
                "model": reading.gpus[0].model if reading.gpus else "",
                "refused": dict(reading.gpus[0].refused) if reading.gpus else {},
            }
        )
    devices.close()
    return found


def tasks(quick: bool) -> list[Task]:
    """One task."""
    polls = QUICK_POLLS if quick else POLLS
    return [Task(POLL, POLL, lambda: measure(polls))]
