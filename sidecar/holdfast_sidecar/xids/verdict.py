"""What was made of a GPU's trouble: plain data, between the engine and the findings."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from holdfast_sidecar.records.findings import Remedy
from holdfast_sidecar.xids.table import FollowUp


class Blame(str, Enum):
    """Whose doing it is."""

    NOBODY = "nobody"
    APPLICATION = "application"
    GPU = "gpu"
    SWITCH = "switch"


@dataclass(frozen=True)
class Verdict:
    """On one kind of trouble of one GPU or switch. Times are Unix seconds."""

    pci: str
    name: str
    """`xid 79`, `sxid 20034`."""
    meaning: str
    remedy: Remedy
    blame: Blame
    why: tuple[str, ...]
    text: str
    """The driver's own line; empty where only NVML told of it."""
    first_s: float
    last_s: float
    times_24h: int
    number: int = 0
    """XID; 0 for a switch's."""
    follow_ups: tuple[FollowUp, ...] = ()
    check: bool = False
    """The GPU should pass a test before it is used again."""
    is_suppressed: bool = False
    """It follows from something else."""
    root: str = ""
    """Name of what it follows from; empty: from nothing that can be named."""
    is_old: bool = False
    """From before the ranks that run now began."""
    is_urgent: bool = False
    """Running work must end for it."""
    is_event: bool = True
    """False: nothing was told, the driver's recovery action was read and had changed."""
    suspects: tuple[str, ...] = ()
    """PCI addresses of the GPUs it touches: its own, or all behind a switch."""
