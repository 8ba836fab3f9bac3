"""Network adapters that complain in the kernel's log: too little power, optics too hot, firmware
that gave up. Commands that the firmware refused are only counted: whoever reads counters of a port
that belongs to a fabric manager makes them.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.kernel_events import KernelEvents
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.findings import Finding, Kind

TOLD_S = 600.0
"""After the last line of its kind: the driver repeats them every few minutes while it lasts."""

MEANINGS = {
    "mlx5_power": ("its slot gives too little power, so that it may run slower", 0.6),
    "mlx5_heat": ("its optics are too hot: it may shut the port down", 0.8),
    "mlx5_fatal": ("its firmware does not work any more", 0.9),
}
"""Event -> what it means, and how sure it is that the link suffers from it."""


def find_troubled_adapters(events: KernelEvents | None, moment: Moment) -> Iterator[Finding]:
    """Those of this node that complained lately."""
    if events is None:
        return
    for (name, pci), event in sorted(events.newest.items()):
        if name in MEANINGS and moment.now_unix_s - event.at_unix_s < TOLD_S:
            meaning, sure = MEANINGS[name]
            yield Finding(
                Kind.LINK_DEGRADED,
                moment.node,
                event.at_unix_s,
                sure,
                evidence=[f"{pci}: {meaning}", event.text],
                what=f"adapter {pci}",
            )
