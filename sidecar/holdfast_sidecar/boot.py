"""Which start of the machine this is: what a reboot was asked for is over under another id."""

from __future__ import annotations

from holdfast_sidecar.kernel_files import read_if_any

BOOT_ID = "/proc/sys/kernel/random/boot_id"
"""Made anew by the kernel at each start; containers see that of their host (proc(5))."""

MOST_BYTES = 64


def read_boot(path: str = BOOT_ID) -> str:
    """The kernel's boot id; empty where it can't be read: then no reboot is noticed."""
    return read_if_any(path, MOST_BYTES).strip()[:MOST_BYTES]
