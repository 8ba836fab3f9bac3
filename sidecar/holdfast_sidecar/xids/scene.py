"""What XIDs are judged by besides themselves: the GPUs' state, the attempt, the launcher."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class GpuState:
    """What one GPU said of itself, as far as it matters here; None: it does not say."""

    model: str = ""
    is_mig: bool = False
    action: int | None = None
    """Field 230: what the driver says it needs."""
    remap_failed: bool | None = None
    """Its own flag: a memory row could not be replaced."""
    energy_joules: float | None = None
    """Spent since the driver was loaded."""
    read_s: float = 0.0
    """When it said so, Unix seconds."""

    @property
    def resets_by_reboot(self) -> bool:
        """Whether a reset does not do for its memory, which takes a reboot.

        So on A100 without MIG, by AWS's health check (remedies for XIDs 64 and 95).
        """
        return not self.is_mig and any(name in self.model for name in ("A100", "A800"))


@dataclass(frozen=True)
class Scene:
    """The node at one moment. Times are Unix seconds."""

    now_s: float
    boot: str = ""
    gpus: Mapping[str, GpuState] = field(default_factory=dict)
    """By PCI address."""
    driver_branch: int = 0
    """550 of 550.54.15; 0: not known."""
    teardowns: tuple[float, ...] = ()
    """When the launcher began to end ranks of this node."""
    attempt_since_s: float | None = None
    """When the ranks that run now began; None: there are none."""


def parse_driver_branch(version: str) -> int:
    """The first number of a driver's version; 0 where there is none."""
    first = version.partition(".")[0]
    return int(first) if first.isascii() and first.isdigit() else 0
