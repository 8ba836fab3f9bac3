"""Network interfaces: what passed, what went wrong, and whether the link is there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast_sidecar.kernel_files import read_text
from holdfast_sidecar.readings.network import Interface, NetworkReading

LOOPBACK_TYPE = 772
"""ARPHRD_LOOPBACK: it has no cable to lose."""

COUNTERS = (
    "rx_bytes",
    "tx_bytes",
    "rx_errors",
    "tx_errors",
    "rx_dropped",
    "tx_dropped",
)


@dataclass
class NetworkProbe:
    """Reads sysfs under `root` (/sys/class/net)."""

    root: Path = Path("/sys/class/net")
    name: str = "network"

    def read(self, now_s: float) -> NetworkReading:
        """Every interface now; one that vanishes while being read is left out."""
        found = (
            read_interface(self.root / name)
            for name in sorted(entry.name for entry in self.root.iterdir())
        )
        return NetworkReading({one.name: one for one in found if one is not None})


def read_interface(directory: Path) -> Interface | None:
    """One interface; None for loopback and for what is no interface (bonding_masters)."""
    kind = _read_number(f"{directory}/type")
    if kind is None or kind == LOOPBACK_TYPE:
        return None
    counters = {name: _read_number(f"{directory}/statistics/{name}") for name in COUNTERS}
    carrier = _read_number(f"{directory}/carrier")
    speed_mbit = _read_number(f"{directory}/speed")
    return Interface(
        name=directory.name,
        has_carrier=None if carrier is None else carrier == 1,
        carrier_losses=_read_number(f"{directory}/carrier_down_count"),
        speed_bytes_per_s=speed_mbit * 1e6 / 8 if speed_mbit and speed_mbit > 0 else None,
        is_physical=(directory / "device").exists(),
        counters={name: value for name, value in counters.items() if value is not None},
    )


def _read_number(path: str) -> int | None:
    """A number from sysfs; None when absent or when the driver refuses (carrier while down)."""
    try:
        return int(read_text(path))
    except (OSError, ValueError):
        return None
