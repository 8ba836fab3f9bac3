"""This machine's GPU as torch sees it, or why this can't be measured here."""

from __future__ import annotations

from typing import Any

from bench.benchmark import NotRun


def torch_with_gpu() -> Any:
    """Torch, on a machine with at least one GPU that it can use."""
    try:
        import torch
    except ImportError:
        raise NotRun("torch is not installed") from None
    if not torch.cuda.is_available():
        raise NotRun("there is no GPU, or this torch is not built for it")
    return torch
