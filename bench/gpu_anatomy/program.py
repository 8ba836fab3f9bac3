"""A rank that trains a transformer and says how long its steps take. Run as a script.

Its loop never waits for the GPU by itself; blocks of steps do, at their ends.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

WARM_UP = 40
"""Steps: kernels are chosen and one step's operations counted by then."""

WATCHED = 40
"""Steps in which a call that waits for the GPU is an error, or is counted."""

WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")


def training(device: str) -> Callable[[], None]:
    """One step, on a batch that comes from the host."""
    width, layers, batch, length = (1024, 8, 8, 512) if device == "cuda" else (32, 1, 2, 8)
    layer = torch.nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, dropout=0.0)
    model = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    data = torch.randn(batch, length, width)
    data = data.pin_memory() if device == "cuda" else data

    def step() -> None:
        moved = data.to(device, non_blocking=True)
        with torch.autocast(device, torch.bfloat16):
            loss = model(moved).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def measure(device: str, blocks: int, steps: int) -> dict[str, Any]:
    """Microseconds of a step, by block; then whether anything waited for the GPU."""
    step = training(device)
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    repeat(step, WARM_UP)
    took_us = []
    for _ in range(blocks):
        wait()
        began_s = time.perf_counter()
        repeat(step, steps)
        wait()
        took_us.append(round((time.perf_counter() - began_s) / steps * 1e6, 3))
    found: dict[str, Any] = {"took_us": took_us, "refused": "", "waits": 0}
    if device == "cuda":
        found["refused"] = refused(step)
        found["waits"] = waits(step)
    return {**found, "device_lags": timed_on_the_device()}


def repeat(step: Callable[[], None], times: int) -> None:
    for _ in range(times):
        step()


def refused(step: Callable[[], None]) -> str:
    """What torch says of a call that waits where it forbids that; empty: there is none."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        repeat(step, WATCHED)
    except RuntimeError as error:
        return str(error).splitlines()[0]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return ""


def waits(step: Callable[[], None]) -> int:
    """Calls by which the host waited, as the profiler counts them."""
    activity = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[activity.CPU, activity.CUDA]) as trace:
        repeat(step, WATCHED)
    return sum(one.count for one in trace.key_averages() if one.key in WAITS)


def timed_on_the_device() -> int:
    """Records that carry a GPU's own times; without any something else was measured."""
    from holdfast.contract import page
    from holdfast.rank import process

    recorder = process.current()
    if recorder is None:
        return 0
    records = page.parse_records(bytes(recorder._memory), 0)
    return sum(record.device_lag > 0 for _, record in records)


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
