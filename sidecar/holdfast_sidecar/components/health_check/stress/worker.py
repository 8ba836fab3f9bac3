"""One device's part of a node's test: `… ASKER RANK WORLD DEVICE SECONDS MEETING`.

Whatever the device itself answers with an error counts as wrong; that torch can't use it at all is
an error of the test, and says nothing of the node.
"""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from holdfast_sidecar.components.health_check.stress_request import (
    ALL_REDUCE,
    GPU,
    MATMUL,
    MEMORY,
    Result,
)
from holdfast_sidecar.linux.process import die_with
from holdfast_sidecar.records.codec import encode

# What one part of the test came to, and waiting for a device to be done.


@dataclass(frozen=True)
class Trial:
    """`per_s`: what was measured; None: it could not be."""

    per_s: float | None = None
    wrong: list[str] = field(default_factory=list)


def settle(device: torch.device) -> None:
    """Let all that was asked of the device be done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# Sums over all devices of the node, as gradients are summed.

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


# Products of matrices of small whole numbers, whose sums floating point holds exactly.
#
# So the right result is known to the last bit, whatever the order of the sums: one that differs was
# computed wrongly.

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


# Patterns written to memory, copied, and compared with what they were.

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


OF_DEVICE = ("CUDA error", "cuBLAS", "CUBLAS", "unhandled cuda error")
"""In the driver's and the libraries' own errors, as torch hands them on; the last one is NCCL's.
What else NCCL says is about sockets, shared memory and settings: a container with a small /dev/shm
is a healthy node."""


def main(arguments: list[str]) -> None:
    """Work, and print the result."""
    asker, rank, world, kind, part_s, meeting = arguments
    die_with(int(asker))
    try:
        device = open_device(kind, int(rank))
    except (RuntimeError, AssertionError) as error:
        print(encode(Result(error=first_line(error))), flush=True)
        return
    wrong: list[str] = []
    figures: dict[str, float] = {}
    seconds = float(part_s)
    parts: tuple[tuple[str, str, Callable[[], Trial]], ...] = (
        ("products", MATMUL, lambda: multiply(device, seconds)),
        ("memory", MEMORY, lambda: fill_memory(device, seconds)),
        ("sums", ALL_REDUCE, lambda: sum_over_ranks(device, int(rank), int(world), meeting)),
    )
    try:
        for words, name, part in parts:
            print(f"testing {words}", flush=True)
            trial = part()
            wrong += trial.wrong
            if trial.per_s is not None:
                figures[name] = trial.per_s
    except RuntimeError as error:
        told = first_line(error)
        if not blames_device(told):
            print(encode(Result(error=told)), flush=True)
            return
        wrong.append(told)
    print(encode(Result(wrong=wrong, figures=figures, model=model_of(device))), flush=True)


def open_device(kind: str, rank: int) -> torch.device:
    """The device, proven to work at all. RuntimeError, or torch's own, says why it does not."""
    device = torch.device(kind, rank) if kind == GPU else torch.device(kind)
    if kind == GPU and not torch.backends.cuda.is_built():
        raise RuntimeError(f"torch {torch.__version__} was built without CUDA")
    if kind == GPU:
        torch.cuda.set_device(device)
    torch.zeros(1, device=device).item()
    return device


def blames_device(told: str) -> bool:
    """Whether an error is the device's own, and not of what surrounds it."""
    return "out of memory" not in told and any(mark in told for mark in OF_DEVICE)


def model_of(device: torch.device) -> str:
    """What is compared only with its like."""
    return str(torch.cuda.get_device_name(device) if device.type == GPU else device.type)


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    return (str(error).splitlines() or [type(error).__name__])[0]


if __name__ == "__main__":
    main(sys.argv[1:])
