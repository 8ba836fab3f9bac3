"""What the kernel's log says of a node's parts, besides XIDs: counted, and the newest kept.

Lines are matched by their beginning and a few words of the driver; what the kernel changes around
them does not matter. Knows nothing of how the log is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

_PCI = re.compile(r"\b([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\b")

PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("mlx5_power", re.compile(r"mlx5_core .*Detected insufficient power on the PCIe slot")),
    ("mlx5_heat", re.compile(r"mlx5_core .*Port module event.*High Temperature", re.IGNORECASE)),
    ("mlx5_refused", re.compile(r"mlx5_core .*mlx5_cmd_out_err.*ACCESS_REG.*failed")),
    ("mlx5_fatal", re.compile(r"mlx5_core .*(health_care|device's health compromised)")),
    ("pcie_error", re.compile(r"pcieport .*AER: .*(error|Error)")),
    ("memory_error", re.compile(r"(EDAC .*\b[CU]E\b|mce: .*Hardware Error)")),
    ("hung_task", re.compile(r"INFO: task .* blocked for more than \d+ seconds")),
    ("nfs_silent", re.compile(r"nfs: server .* not responding")),
    ("lustre_error", re.compile(r"LustreError: ")),
    ("nvme_timeout", re.compile(r"nvme nvme\d+: .*\btimeout\b")),
    (
        "disk_read_only",
        re.compile(
            r"(EXT4-fs|BTRFS|XFS)\b.*"
            r"(Remounting filesystem read-only|forced readonly|Shutting down filesystem"
            r"|[Ff]ilesystem has been shut down)"
        ),
    ),
    ("lockup", re.compile(r"(NMI )?watchdog: .*(soft lockup|hard LOCKUP)")),
    ("nccl_crash", re.compile(r"\S+\[\d+\]: segfault at .* in libnccl")),
)
"""Event -> how its line is known. The mlx5 ones are those that gpud looks for, and firmware that
gave up. Those of local disks, stuck processors and NCCL are only counted."""


class Logged(Protocol):
    """A record of the kernel's log."""

    @property
    def text(self) -> str:
        """The line, without level and time."""

    @property
    def at_unix_s(self) -> float:
        """When it was logged."""


@dataclass(frozen=True)
class KernelEvent:
    """One of them."""

    event: str
    pci: str
    """As in sysfs: `0000:18:00.0`; empty: it is about no PCI device."""
    text: str
    at_unix_s: float


@dataclass(frozen=True)
class KernelEvents:
    """All since this sidecar started, and what of them was in the log before."""

    counts: Mapping[str, int] = field(default_factory=lambda: {name: 0 for name, _ in PATTERNS})
    newest: Mapping[tuple[str, str], KernelEvent] = field(default_factory=dict)
    """(event, PCI address) -> the last one."""

    def then(self, records: Iterable[Logged]) -> KernelEvents:
        """With these records."""
        found = [event for one in records if (event := parse_event(one)) is not None]
        if not found:
            return self
        counts, newest = dict(self.counts), dict(self.newest)
        for event in found:
            counts[event.event] += 1
            newest[event.event, event.pci] = event
        return KernelEvents(counts, newest)


def parse_event(record: Logged) -> KernelEvent | None:
    """The event that a line tells of; None: none of ours."""
    for name, pattern in PATTERNS:
        if pattern.match(record.text):
            address = _PCI.search(record.text)
            return KernelEvent(name, address[1] if address else "", record.text, record.at_unix_s)
    return None
