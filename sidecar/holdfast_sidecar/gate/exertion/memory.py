"""Patterns written to memory, copied, and compared with what they were."""

from __future__ import annotations

import time

import torch

from holdfast_sidecar.gate.exertion.trial import Trial, settle

PATTERNS = (0x5555555555555555, -0x5555555555555556, 0x00FF00FF00FF00FF)
"""Neighbouring bits that differ, their inverse, and bytes that do."""

GPU_BYTES = 8 * 2**30
CPU_BYTES = 64 * 2**20
"""Of each buffer, on the host far above any cache; a quarter of what is free at most on a GPU."""


def fill_memory(device: torch.device, seconds: float) -> Trial:
    """For so long, one pattern after the other; at least each of them once."""
    count = _bytes(device) // 8
    source = torch.empty(count, dtype=torch.int64, device=device)
    copy = torch.empty_like(source)
    wrong: list[str] = []
    moved, copying_s, turn = 0, 0.0, 0
    began_s = time.perf_counter()
    while turn < len(PATTERNS) or time.perf_counter() - began_s < seconds:
        pattern = PATTERNS[turn % len(PATTERNS)]
        source.fill_(pattern)
        settle(device)
        copied_s = time.perf_counter()
        copy.copy_(source)
        settle(device)
        copying_s += time.perf_counter() - copied_s
        moved += 2 * 8 * count
        if bad := int((copy != pattern).sum()):
            wrong.append(f"{bad} words of memory differ from what was written")
        turn += 1
    return Trial(moved / copying_s, wrong[:1])


def _bytes(device: torch.device) -> int:
    if device.type != "cuda":
        return CPU_BYTES
    free, _ = torch.cuda.mem_get_info(device)
    return min(GPU_BYTES, int(free) // 4)
