"""Whether the leader should wait for what this node's sidecar says of it before taking it in."""

from __future__ import annotations

from pathlib import Path

from holdfast_sidecar.settings import GateSettings

DRIVERS = (Path("/dev/nvidiactl"), Path("/dev/dxg"))
"""What NVIDIA's driver leaves where there is one (the second under WSL). Containers that may use a
GPU see it."""


def awaits_gate(settings: GateSettings, has_sidecar: bool) -> bool:
    """Without a GPU nothing is worth a wait: there the first verdict comes when ranks would start,
    and torch alone takes longer than a verdict that matters to the next attempt."""
    has_gpus = settings.expected_gpus > 0 or any(path.exists() for path in DRIVERS)
    return has_sidecar and has_gpus
