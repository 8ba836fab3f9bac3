"""How much tasks wait for CPU, memory, disks and interrupts (PSI), of the host or of a cgroup."""

from __future__ import annotations

from pathlib import Path

from holdfast_sidecar.linux.files import read_if_any
from holdfast_sidecar.readings.host import Pressure

RESOURCES = ("cpu", "io", "memory", "irq")


def read_pressures(directory: Path) -> dict[str, Pressure]:
    """Pressure by resource, as far as the kernel tells."""
    parsed = {name: parse_pressure(read_if_any(f"{directory}/{name}")) for name in RESOURCES}
    return {name: pressure for name, pressure in parsed.items() if pressure is not None}


def parse_pressure(text: str) -> Pressure | None:
    """Parse a file of /proc/pressure; None when it says nothing. Totals there are microseconds."""
    lines = {}
    for line in text.splitlines():
        kind, *fields = line.split() or [""]
        lines[kind] = dict(item.split("=", 1) for item in fields if "=" in item)
    try:
        some, full = _parse_line(lines.get("some")), _parse_line(lines.get("full"))
    except (KeyError, ValueError):
        return None
    if some is None and full is None:
        return None
    return Pressure(
        waiting_s=None if some is None else some[0],
        stalled_s=None if full is None else full[0],
        waiting_10s_ratio=0.0 if some is None else some[1],
        stalled_10s_ratio=None if full is None else full[1],
    )


def _parse_line(fields: dict[str, str] | None) -> tuple[float, float] | None:
    """(seconds in all, share of the last 10 s)"""
    if fields is None:
        return None
    return int(fields["total"]) / 1e6, float(fields["avg10"]) / 100
