"""What the NVIDIA driver told by itself since the look before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast_sidecar.readings.gpu import NvmlSilence
from holdfast_sidecar.xids.event import XidEvent

UNKNOWN_XID = "unknown_xid"
"""An XID by a number that can't be one: told and counted, and nothing follows from it."""


@dataclass(frozen=True)
class DriverEvent:
    """An event of another kind than XID, under the name that `nvml/event_child.py` gives it, or
    UNKNOWN_XID."""

    at_unix_s: float
    name: str
    pci: str
    """Empty: not known."""
    data: int


@dataclass(frozen=True)
class GpuEvents:
    """All that came since the look before, and how the waiting stands."""

    xids: tuple[XidEvent, ...] = ()
    others: tuple[DriverEvent, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    """Of the others, by name, since the first that was waited for; 0 of what did not come."""
    listening_to: int | None = None
    """GPUs whose events are waited for; None: nobody waits (no driver, or not yet)."""
    silence: NvmlSilence | None = None
    """The driver does not answer the child that waits."""
    stuck: int = 0
    """Children that waited once, were killed and are not gone."""
