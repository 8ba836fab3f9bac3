"""What the judges of GPUs are shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast_sidecar.gpus.history import GpuHistory, Track
from holdfast_sidecar.gpus.ownership import Ownership
from holdfast_sidecar.gpus.processes import Company
from holdfast_sidecar.readings.gpu import Gpu, GpuReading


@dataclass(frozen=True)
class GpuScene:
    """A fresh reading, what went before it, and whose GPUs they are."""

    reading: GpuReading
    history: GpuHistory = field(default_factory=GpuHistory)
    ownership: Ownership = field(default_factory=Ownership)
    company: Company = field(default_factory=Company)

    def answering(self) -> Iterator[tuple[Gpu, Track]]:
        """Those GPUs that say something, each with its past."""
        for gpu in self.reading.gpus:
            if not gpu.lost:
                yield gpu, self.history.track(gpu.uuid)
