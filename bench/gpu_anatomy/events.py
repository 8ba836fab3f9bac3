"""Row `events`: the three calls that timing on the GPU's own clock is made of."""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.benchmark import Sample, Task
from bench.gpu_anatomy.gpu import torch_with_gpu
from bench.gpu_anatomy.names import EVENTS

CALLS = 1000
BLOCKS = 30


def measure(calls: int, blocks: int) -> list[Sample]:
    """One sample per call: microseconds, mean of each block."""
    torch = torch_with_gpu()
    stream = torch.cuda.current_stream()
    first, second = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record(stream)
    second.record(stream)
    torch.cuda.synchronize()
    asked = {
        "record": lambda: second.record(stream),
        "is the stream captured": torch.cuda.is_current_stream_capturing,
        "query": first.query,
        "elapsed_time": lambda: first.elapsed_time(second),
        "memory_stats_as_nested_dict": torch.cuda.memory_stats_as_nested_dict,
    }
    found = []
    for name, call in asked.items():
        took_us = [_mean_us(call, calls) for _ in range(blocks)]
        torch.cuda.synchronize()
        found.append({"call": name, "took_us": took_us, "device": torch.cuda.get_device_name()})
    return found


def _mean_us(call: Callable[[], object], calls: int) -> float:
    began_s = time.perf_counter()
    for _ in range(calls):
        call()
    return round((time.perf_counter() - began_s) / calls * 1e6, 4)


def tasks(quick: bool) -> list[Task]:
    """One task: the calls are short."""
    return [Task(EVENTS, EVENTS, lambda: measure(CALLS, 5 if quick else BLOCKS))]
