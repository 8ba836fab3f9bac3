"""What the driver said of GPUs' faults, and what was made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast_sidecar.gpus.ownership import CERTAIN
from holdfast_sidecar.records.findings import Remedy
from holdfast_sidecar.xids.verdict import Verdict


@dataclass(frozen=True)
class Tally:
    """How often one XID, or one SXid, came. Times are Unix seconds."""

    seen: int
    """Since this sidecar started."""
    in_24h: int
    last_s: float
    remedy: Remedy
    """What was last judged to be needed."""


@dataclass(frozen=True)
class Known:
    """A GPU as it was last listed; one that fell off the bus may be listed no more."""

    uuid: str
    index: int
    rank: int | None = None
    """Of the attempt that runs; None: nobody's, or not known."""
    sureness: float = 0.0
    """How sure that is, 0 to 1."""

    @property
    def is_certain(self) -> bool:
        """Whether it was seen to be that rank's, rather than worked out."""
        return self.sureness >= CERTAIN


@dataclass(frozen=True)
class XidReading:
    """The node at one tick."""

    verdicts: tuple[Verdict, ...] = ()
    """What is not over."""
    gpus: Mapping[str, Known] = field(default_factory=dict)
    """By PCI address."""
    xids: Mapping[tuple[str, int], Tally] = field(default_factory=dict)
    """(PCI address, XID) -> how often; the most frequent few of each GPU."""
    sxids: Mapping[int, Tally] = field(default_factory=dict)
    """SXid -> how often, over all switches of the node."""
    steps: Mapping[tuple[str, str], Mapping[int, int]] = field(default_factory=dict)
    """(PCI address, name) of a verdict -> rank -> how many steps it had done when that happened."""
    asked_since: Mapping[str, float] = field(default_factory=dict)
    """UUID of a GPU for which the driver asks for something -> since when it does, Unix seconds."""
    lacks_gpus: bool = False
    """The driver lists fewer than there should be: one that is not known may be among these."""
