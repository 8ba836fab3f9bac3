"""What is saved: a network with Adam, as large as asked for, on every rank."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

WIDTH = 860
"""A layer is then 3 MB, its Adam state 6: a hundred tensors and more in 300 MB, as in a model."""

LAYER_BYTES = 3 * 4 * (WIDTH * WIDTH + WIDTH)
DDP_BUCKETS_MB = 25


def make(megabytes: int) -> tuple[Any, Any]:
    """Model (replicated over the ranks, if there are several) and optimizer, its state made."""
    torch.manual_seed(0)
    layers = max(1, round(megabytes * 1e6 / LAYER_BYTES))
    model: Any = torch.nn.Sequential(*(torch.nn.Linear(WIDTH, WIDTH) for _ in range(layers)))
    if dist.get_world_size() > 1:
        model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=DDP_BUCKETS_MB)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 1e-3)
    optimizer.step()
    return model, optimizer


def tensors(model: Any, optimizer: Any) -> dict[str, torch.Tensor]:
    """Every tensor by a name of its own; the live ones."""
    inner = getattr(model, "module", model)
    found = {f"model.{name}": value.detach() for name, value in inner.named_parameters()}
    for name, parameter in inner.named_parameters():
        for key, value in optimizer.state[parameter].items():
            found[f"optimizer.{name}.{key}"] = value
    return found


def size_bytes(state: dict[str, torch.Tensor]) -> int:
    """All of it together."""
    return sum(value.numel() * value.element_size() for value in state.values())
