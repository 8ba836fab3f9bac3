"""What lost time costs in money."""

from __future__ import annotations

from holdfast_sidecar.config.settings import CostSettings


def money(lost_s: float, ranks: int, settings: CostSettings) -> float | None:
    """What so many seconds of the whole job cost, in `settings.currency`: its ranks wait together.
    None: nobody said what an hour of a GPU costs."""
    if settings.per_gpu_hour <= 0:
        return None
    return lost_s / 3600 * ranks * settings.per_gpu_hour
