"""The host's memory, from /proc/meminfo."""

from __future__ import annotations

from dataclasses import dataclass


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
