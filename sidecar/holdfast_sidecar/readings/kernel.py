"""What the kernel logged since the tick before."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelRecord:
    """One record of the kernel's log."""

    sequence: int
    """The kernel's own number; counts up, and begins again with each boot."""
    level: int
    """0 (emergency) to 7 (debug)."""
    at_s: float
    """The kernel's clock: seconds since it started."""
    text: str
    at_unix_s: float = 0.0
    """When it was logged, by this node's wall clock."""
    is_backlog: bool = False
    """It was there before this sidecar began to read."""


@dataclass(frozen=True)
class KernelReading:
    """Records that somebody here understands (`xids.watch.WANTED`), oldest first."""

    records: tuple[KernelRecord, ...] = ()
    missed: int = 0
    """Records that were overwritten before they were read, or too many at once; since the start."""
