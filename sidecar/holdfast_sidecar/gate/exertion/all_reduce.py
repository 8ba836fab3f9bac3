"""Sums over all devices of the node, as gradients are summed."""

from __future__ import annotations

import datetime
import time

import torch
import torch.distributed as dist

from holdfast_sidecar.gate.exertion.trial import Trial, settle

PATIENCE = datetime.timedelta(seconds=30)
BYTES = {"cuda": 256 * 2**20, "cpu": 4 * 2**20}
"""Of the tensor: large enough that bandwidth counts and not latency."""

WARM, TIMED = 3, 20
"""All ranks must make as many: a clock could not tell them when to stop."""


def sum_over_ranks(device: torch.device, rank: int, world: int, meeting: str) -> Trial:
    """Bytes per second as each link carries them (2 (n-1)/n of the tensor); nothing for one."""
    if world < 2:
        return Trial()
    backend = "nccl" if device.type == "cuda" else "gloo"
    where = f"file://{meeting}"
    dist.init_process_group(
        backend, init_method=where, rank=rank, world_size=world, timeout=PATIENCE
    )
    try:
        tensor = torch.empty(BYTES[device.type] // 4, dtype=torch.float32, device=device)
        wrong, took_s = 0, 0.0
        for turn in range(WARM + TIMED):
            tensor.fill_(rank + 1.0)
            settle(device)
            began_s = time.perf_counter()
            dist.all_reduce(tensor)
            settle(device)
            took_s += (time.perf_counter() - began_s) * (turn >= WARM)
            wrong += int(bool((tensor != world * (world + 1) / 2).any()))
    finally:
        dist.destroy_process_group()
    told = [f"{wrong} of {WARM + TIMED} sums over the ranks came out wrong"] if wrong else []
    return Trial(TIMED * BYTES[device.type] * 2 * (world - 1) / world / took_s, told)
