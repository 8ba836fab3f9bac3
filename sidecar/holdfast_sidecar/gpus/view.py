"""What metrics tell of GPUs beside their numbers: whose they are and what they spend."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast_sidecar.gpus.energy import EnergyAccount
from holdfast_sidecar.gpus.ownership import Ownership


@dataclass(frozen=True)
class GpuView:
    """As of the newest fresh reading."""

    ownership: Ownership = field(default_factory=Ownership)
    energy: EnergyAccount = field(default_factory=EnergyAccount)
