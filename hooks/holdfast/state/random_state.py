"""The random number generators of this process: Python's, NumPy's, torch's, and named others."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True)
class RandomState:
    """All generators at one moment. NumPy's and CUDA's are None when not in use then."""

    python: tuple[Any, ...]
    torch_cpu: Any
    numpy: tuple[Any, ...] | None = None
    cuda: list[Any] | None = None
    named: dict[str, Any] = field(default_factory=dict)


def capture_random_state(generators: Mapping[str, Any] | None = None) -> RandomState:
    """Read every generator; `generators` are torch.Generators beside the global ones."""
    numpy = sys.modules.get("numpy")
    return RandomState(
        python=random.getstate(),
        torch_cpu=torch.get_rng_state(),
        numpy=None if numpy is None else numpy.random.get_state(),
        cuda=torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None,
        named={name: generator.get_state() for name, generator in (generators or {}).items()},
    )


def restore_random_state(state: RandomState, generators: Mapping[str, Any] | None = None) -> None:
    """Put every generator back to where it was."""
    random.setstate(state.python)
    torch.set_rng_state(state.torch_cpu)
    if state.numpy is not None:
        import numpy

        numpy.random.set_state(state.numpy)
    if state.cuda is not None and torch.cuda.is_available():
        # A job may come back on a node with fewer visible devices than it left.
        for device, device_state in enumerate(state.cuda[: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(device_state, device)
    for name, generator in (generators or {}).items():
        if name in state.named:
            generator.set_state(state.named[name])
