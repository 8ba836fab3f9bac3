"""Products of matrices of small whole numbers, whose sums floating point holds exactly.

So the right result is known to the last bit, whatever the order of the sums: one that differs was
computed wrongly.
"""

from __future__ import annotations

import time

import torch

from holdfast_sidecar.gate.exertion.trial import Trial, settle

LARGEST = 8
"""Sums of 8,192 products up to 64 stay below 2^24, the last whole number float32 is sure of."""

SIDES = {"cuda": 8192, "cpu": 512}
"""Large enough to keep every unit busy, small enough for a hundred in a second."""

BATCH = 8
"""Products between two looks at the clock."""


def multiply(device: torch.device, seconds: float) -> Trial:
    """For so long, each product checked. On a GPU in bfloat16, the tensor cores' daily work."""
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    side = SIDES[device.type]
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    generator = torch.Generator().manual_seed(1)
    left, right = (
        torch.randint(-LARGEST, LARGEST + 1, (side, side), generator=generator).to(device, dtype)
        for _ in range(2)
    )
    right_result = (left.double() @ right.double()).to(dtype)
    wrong = torch.zeros((), dtype=torch.int64, device=device)
    done = 0
    left @ right
    settle(device)
    began_s = time.perf_counter()
    while (took_s := time.perf_counter() - began_s) < seconds:
        for _ in range(BATCH):
            wrong += ((left @ right) != right_result).any()
        settle(device)
        done += BATCH
    told = [f"{int(wrong)} of {done} products came out wrong"] if int(wrong) else []
    return Trial(2.0 * side**3 * done / took_s, told)
