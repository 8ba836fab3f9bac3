"""Whether the leader should wait for what this node's sidecar says of it before taking it in."""

from __future__ import annotations

from pathlib import Path

from holdfast_sidecar.config.settings import GateSettings
from holdfast_sidecar.linux.files import KernelTrees

DRIVERS = ("nvidiactl", "dxg")
"""What NVIDIA's driver leaves in /dev where there is one (the second under WSL)."""

OWN = Path("/dev")
"""Containers that may use a GPU see it here, whatever they see of their host elsewhere."""


def awaits_gate(settings: GateSettings, has_sidecar: bool, machine_root: str) -> bool:
    """Without a GPU nothing is worth a wait, unless somebody set what is to be waited for: what is
    wrong with a CPU's node mostly was so before, and its verdict is there by the next attempt."""
    is_wished = settings.expected_gpus > 0 or settings.test_after_blame
    return has_sidecar and (is_wished or _has_driver(OWN, KernelTrees(machine_root).dev))


def _has_driver(*places: Path) -> bool:
    return any((place / name).exists() for place in places for name in DRIVERS)
