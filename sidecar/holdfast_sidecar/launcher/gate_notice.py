"""Whether the leader should wait for what this node's sidecar says of it before taking it in."""

from __future__ import annotations

from pathlib import Path

from holdfast_sidecar.settings import GateSettings

DRIVERS = (Path("/dev/nvidiactl"), Path("/dev/dxg"))
"""What NVIDIA's driver leaves where there is one (the second under WSL). Containers that may use a
GPU see it."""


def awaits_gate(settings: GateSettings, has_sidecar: bool) -> bool:
    """Without a GPU nothing is worth a wait, unless somebody set what is to be waited for: what is
    wrong with a CPU's node mostly was so before, and its verdict is there by the next attempt."""
    is_wished = settings.expected_gpus > 0 or settings.test_after_blame
    return has_sidecar and (is_wished or any(path.exists() for path in DRIVERS))
