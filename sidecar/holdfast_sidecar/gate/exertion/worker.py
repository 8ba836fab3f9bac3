"""One device's part of a node's test: `… ASKER RANK WORLD DEVICE SECONDS MEETING`.

Whatever the device itself answers with an error counts as wrong; that torch can't use it at all is
an error of the test, and says nothing of the node.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch

from holdfast_sidecar.gate.errand import ALL_REDUCE, GPU, MATMUL, MEMORY, Result
from holdfast_sidecar.gate.exertion.all_reduce import sum_over_ranks
from holdfast_sidecar.gate.exertion.matmul import multiply
from holdfast_sidecar.gate.exertion.memory import fill_memory
from holdfast_sidecar.gate.exertion.trial import Trial
from holdfast_sidecar.linux.process import die_with
from holdfast_sidecar.records.codec import encode

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
