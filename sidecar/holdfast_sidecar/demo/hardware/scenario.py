"""What happens to the hardware, in which order, and what Holdfast should make of each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from holdfast_sidecar.records.findings import Kind

NODES = ("a", "b")
"""The first one trains, the other one is the spare."""
PORTS = 8
NEVER_STEPS = 1_000_000
"""No periodic checkpoints: those that are made are made for a finding."""
STEPS_LEFT = 30
"""The job ends so many steps after the last story: long enough to see that it goes on."""


class Fault(str, Enum):
    """What becomes of the hardware of the training node."""

    LINK_FLAP = "a link flaps"
    HEAT = "a GPU gets too hot"
    WEDGE = "NVML hangs"
    ECC_STORM = "a storm of corrected errors"
    XID_79 = "XID 79: it falls off the bus"


@dataclass(frozen=True)
class Story:
    """One fault, and what is right to say and to do about it."""

    fault: Fault
    gpu: int
    """Index of the GPU that is hurt; -1: it is not about one."""
    finding: Kind
    blinds: bool = False
    """While it lasts nothing else of the GPUs is seen: the next story waits for its end."""
    is_saved: bool = False
    """The job is to be saved before worse comes."""
    ends_attempt: bool = False
    """The node is to be given up, and the spare to take its place."""

    @property
    def ranks(self) -> tuple[int, ...]:
        """Whom it is to be tied to: GPU n is rank n's here."""
        return () if self.gpu < 0 else (self.gpu,)


def stories(gpus: int) -> tuple[Story, ...]:
    """From harmless to fatal; the storm and the XID hit one GPU, as they do in the field."""
    hot, failing = min(3, gpus - 1), min(5, gpus - 1)
    return (
        Story(Fault.LINK_FLAP, -1, Kind.LINK_FLAPPING),
        Story(Fault.HEAT, hot, Kind.GPU_THROTTLED),
        Story(Fault.WEDGE, -1, Kind.NVML_WEDGED, blinds=True),
        Story(Fault.ECC_STORM, failing, Kind.ECC_STORM, is_saved=True),
        Story(Fault.XID_79, failing, Kind.GPU_FAULT, ends_attempt=True),
    )
