"""The host's memory, from /proc/meminfo."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast_sidecar.components.host.readings import (
    CgroupReading,
    HostReading,
    MemoryErrors,
    tally_before,
)
from holdfast_sidecar.linux.files import list_names, read_if_any
from holdfast_sidecar.records.findings import Finding, Kind, Moment, Remedy


@dataclass(frozen=True)
class Memory:
    """Bytes."""

    size_bytes: int
    available_bytes: int
    swap_used_bytes: int


def parse_meminfo(text: str) -> Memory:
    """Parse /proc/meminfo (kibibytes there). ValueError where it is no such file."""
    kib = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        value = rest.split(maxsplit=1)[:1]
        if value and value[0].isdecimal():
            kib[name] = int(value[0])
    if "MemTotal" not in kib or "MemAvailable" not in kib:
        raise ValueError("/proc/meminfo tells no available memory")
    swap_used = kib.get("SwapTotal", 0) - kib.get("SwapFree", 0)
    return Memory(kib["MemTotal"] * 1024, kib["MemAvailable"] * 1024, swap_used * 1024)


# Errors of the host's memory, as its controllers count them (EDAC).


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


# Memory of the host or of the ranks' control group all but gone, or memory that fails.

STALLED_RATIO = 0.1
"""A tenth of all time in which every task waits for memory: the host thrashes, and the OOM killer
is near. Reclaim on a busy but healthy host stays below a percent."""

AVAILABLE_RATIO = 0.03
"""Page cache counts as available, so a host this low has nothing left to give."""

WORSE_STALLED_RATIO = 0.5
WORSE_AVAILABLE_RATIO = 0.01
"""From here on the end is near: the host waits more than it works, or the next allocation of a
gigabyte on a host of 100 is too much. The job is saved once more (`policy/precaution.py`)."""

STORM = 100
STORM_S = 3600.0
"""Corrected errors within an hour. A module with a weak cell tells some dozens a day for years; one
that needs correction every half minute is on its way to an error that can't be corrected, which
kills whoever reads it. (The kernel's own word "storm", 15 a second, is about the cost of telling.)
"""

NEW_S = 600.0
"""For so long an uncorrected error is told as new. The kernel ends who reads what is lost (SIGBUS);
a rank that dies within a minute of it died of it (`policy/hardware.py`), and leaders that change
and a look every half minute take their time on top."""

OF_GROUP = "control_group"


def find_memory_pressure(host: HostReading, moment: Moment) -> Iterator[Finding]:
    """Of the host, and of the control group, whose limit kills as surely."""
    memory = host.pressure.get("memory")
    stalled = (memory.stalled_10s_ratio or 0.0) if memory is not None else 0.0
    left = host.memory_available_bytes
    if stalled >= STALLED_RATIO:
        text = f"all tasks waited for memory {stalled:.0%} of the last 10 s"
        yield _finding(Kind.MEMORY_PRESSURE, moment, text, sure=_sure_of_stalls(stalled))
    elif left < AVAILABLE_RATIO * host.memory_size_bytes:
        text = f"{left / 2**20:.0f} MiB of memory are left"
        sure = _sure_of_want(left, host.memory_size_bytes)
        yield _finding(Kind.MEMORY_PRESSURE, moment, text, sure=sure)
    if host.group is not None:
        yield from _pressure_of_group(host.group, moment)


def find_memory_errors(host: HostReading, moment: Moment) -> Iterator[Finding]:
    """Errors that could not be corrected since boot, or a storm of those that could."""
    errors = host.memory_errors
    if errors is None:
        return
    if errors.uncorrected:
        text = f"{errors.uncorrected} memory errors since boot could not be corrected"
        yield _finding(Kind.HOST_MEMORY_ERRORS, moment, text, "uncorrected")
    if new := _new_uncorrected(host):
        yield _just_failed(new, errors.uncorrected or 0, moment)
    storm = _corrected_of_late(host)
    if storm >= STORM:
        text = f"{storm} memory errors were corrected within an hour"
        yield _finding(Kind.HOST_MEMORY_ERRORS, moment, text, "corrected")


def _pressure_of_group(group: CgroupReading, moment: Moment) -> Iterator[Finding]:
    stalled = group.memory_stalled_10s_ratio or 0.0
    limit, used = group.memory_limit_bytes, group.memory_used_bytes
    if stalled >= STALLED_RATIO:
        text = f"all tasks of the control group waited for memory {stalled:.0%} of the last 10 s"
        sure = _sure_of_stalls(stalled)
        yield _finding(Kind.MEMORY_PRESSURE, moment, text, OF_GROUP, sure)
    elif limit is not None and used is not None and limit - used < AVAILABLE_RATIO * limit:
        left = max(0, limit - used)
        text = f"{left / 2**20:.0f} MiB are left below the control group's limit of memory"
        yield _finding(Kind.MEMORY_PRESSURE, moment, text, OF_GROUP, _sure_of_want(left, limit))


def _sure_of_stalls(ratio: float) -> float:
    return 0.95 if ratio >= WORSE_STALLED_RATIO else 0.9


def _sure_of_want(left_bytes: int, size_bytes: int) -> float:
    return 0.95 if left_bytes < WORSE_AVAILABLE_RATIO * size_bytes else 0.9


def _corrected_of_late(host: HostReading) -> int:
    """Since an hour ago, or since we look; counts that went backwards began anew."""
    before, errors = tally_before(host, STORM_S), host.memory_errors
    before = before or next(iter(host.earlier), None)
    if before is None or before.corrected is None or errors is None or errors.corrected is None:
        return 0
    return max(0, errors.corrected - before.corrected)


def _new_uncorrected(host: HostReading) -> int:
    """Since ten minutes ago, or since we look: what was counted before may be of last week."""
    before, errors = tally_before(host, NEW_S), host.memory_errors
    before = before or next(iter(host.earlier), None)
    if before is None or before.uncorrected is None or errors is None:
        return 0
    return max(0, (errors.uncorrected or 0) - before.uncorrected)


def _just_failed(new: int, in_all: int, moment: Moment) -> Finding:
    """Each further one is another finding, with an onset of its own. No reboot mends a module; and
    nobody is ended for it, as the kernel uses the page no more and who has not read it is well."""
    text = f"{new} memory errors of the last minutes could not be corrected: what was there is lost"
    found = _finding(Kind.HOST_MEMORY_ERRORS, moment, text, f"uncorrected-{in_all}")
    return dataclasses.replace(found, remedy=Remedy.REPLACE)


def _finding(kind: Kind, moment: Moment, text: str, what: str = "", sure: float = 0.9) -> Finding:
    return Finding(kind, moment.node, moment.now_unix_s, sure, evidence=[text], what=what)
