"""What one part of the test came to, and waiting for a device to be done."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class Trial:
    """`per_s`: what was measured; None: it could not be."""

    per_s: float | None = None
    wrong: list[str] = field(default_factory=list)


def settle(device: torch.device) -> None:
    """Let all that was asked of the device be done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
