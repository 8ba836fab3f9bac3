"""One thing the NVIDIA driver said of a GPU's or a switch's health, as it said it.

Plain data, whichever way it came: not yet understood, nor counted once where it came
by two ways.
"""

from dataclasses import dataclass

FROM_NVML = "nvml"
"""The event came from an NVML event set: no text, but the GPU is sure."""

FROM_KERNEL_LOG = "kmsg"
"""The event was read from the kernel's log: has its text, and may be from before."""


GREATEST = 0xFFFF
"""The driver counts its XIDs in the hundreds; NVML's field for them has 64 bits, and whoever finds
more than 16 of them used reads something else."""


def is_number(xid: int) -> bool:
    """Whether it can be an XID's. 0 is none: events without a number come by the log's lines."""
    return 0 < xid <= GREATEST


@dataclass(frozen=True)
class XidEvent:
    """One event of the driver's.

    `at_unix_s` is when it happened (wall clock), `source` one of "nvml", "kmsg". `xid`
    is 0 where the driver gave no number (a GPU that fell off the bus, a switch's SXid).
    `pci` is as sysfs writes it (`0000:17:00.0`), of the GPU or, with `sxid`, of the
    switch; "" if it was not told. `text` is the raw line. `recovery_action` is what XID
    154 carries, in field 230's numbers; None where the event says nothing of it.
    """

    at_unix_s: float
    source: str
    xid: int
    pci: str
    text: str
    sxid: int = 0
    recovery_action: int | None = None
