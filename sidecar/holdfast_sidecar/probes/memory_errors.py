"""Errors of the host's memory, as its controllers count them (EDAC)."""

from __future__ import annotations

from pathlib import Path

from holdfast_sidecar.kernel_files import list_names, read_if_any
from holdfast_sidecar.readings.host import MemoryErrors


def read_memory_errors(sys: Path) -> MemoryErrors | None:
    """All controllers together, those errors included that no module could be named for; None
    where none is told of (no ECC, a virtual machine, a driver that isn't loaded)."""
    root = sys / "devices/system/edac/mc"
    controllers = [name for name in list_names(root) if name.startswith("mc")]
    corrected = [_read_count(f"{root}/{name}/ce_count") for name in controllers]
    uncorrected = [_read_count(f"{root}/{name}/ue_count") for name in controllers]
    known = [count for count in (*corrected, *uncorrected) if count is not None]
    if not known:
        return None
    return MemoryErrors(sum(c or 0 for c in corrected), sum(c or 0 for c in uncorrected))


def _read_count(path: str) -> int | None:
    text = read_if_any(path).strip()
    return int(text) if text.isdecimal() else None
