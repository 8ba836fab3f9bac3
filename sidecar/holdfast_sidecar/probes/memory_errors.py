"""Errors of the host's memory, as its controllers count them (EDAC)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from holdfast_sidecar.linux.files import list_names, read_if_any
from holdfast_sidecar.readings.host import MemoryErrors


def read_memory_errors(sys: Path) -> MemoryErrors | None:
    """All controllers together, those errors included that no module could be named for; None
    where none is told of (no ECC, a virtual machine, a driver that isn't loaded)."""
    root = sys / "devices/system/edac/mc"
    controllers = [name for name in list_names(root) if name.startswith("mc")]
    corrected = _sum(_read_count(f"{root}/{name}/ce_count") for name in controllers)
    uncorrected = _sum(_read_count(f"{root}/{name}/ue_count") for name in controllers)
    if corrected is None and uncorrected is None:
        return None
    return MemoryErrors(corrected, uncorrected)


def _sum(counts: Iterable[int | None]) -> int | None:
    """Of those that can be read; None where none can."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _read_count(path: str) -> int | None:
    text = read_if_any(path).strip()
    return int(text) if text.isdecimal() else None
