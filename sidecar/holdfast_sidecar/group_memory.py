"""Memory of control groups, version 1 and 2: what they allow a process, and how much is taken.

A limit may be set on any group above: the one with the least left counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast_sidecar.control_groups import Place, read_counts
from holdfast_sidecar.kernel_files import read_if_any

UNLIMITED = 2**60
"""Version 1 says "no limit" with a number near 2**63; nobody has an exbibyte."""


@dataclass(frozen=True)
class GivenBack:
    """Entries of `memory.stat` that a reader doesn't count as taken."""

    v1: tuple[str, ...]
    v2: tuple[str, ...]


AT_ONCE = GivenBack(("total_inactive_file",), ("inactive_file",))
"""What can be given back at once: the cache of files read once."""

BEFORE_ANYBODY_IS_KILLED = GivenBack(
    ("total_inactive_file", "total_active_file"),
    ("inactive_file", "active_file", "slab_reclaimable"),
)
"""What the kernel takes back before it kills anybody."""


@dataclass(frozen=True)
class GroupMemory:
    """Of the group with the least left; without a limit, of the nearest."""

    limit_bytes: int | None = None
    used_bytes: int | None = None

    @property
    def free_bytes(self) -> int | None:
        """What may still be taken; None without a limit."""
        if self.limit_bytes is None or self.used_bytes is None:
            return None
        return self.limit_bytes - self.used_bytes


def read_memory(places: Sequence[Place], given_back: GivenBack) -> GroupMemory:
    """Of these groups, the nearest first; empty where nothing is told."""
    known = [_read_one(place, given_back) for place in places]
    limited = [(one.free_bytes, one) for one in known if one.free_bytes is not None]
    if limited:
        return min(limited, key=lambda pair: pair[0])[1]
    return GroupMemory(None, next((o.used_bytes for o in known if o.used_bytes is not None), None))


def _read_one(place: Place, given_back: GivenBack) -> GroupMemory:
    at = place.directory
    if place.is_unified:
        used = _read_used(at / "memory.current", given_back.v2)
        return GroupMemory(_read_limit(at / "memory.max"), used)
    used = _read_used(at / "memory.usage_in_bytes", given_back.v1)
    return GroupMemory(_read_limit(at / "memory.limit_in_bytes"), used)


def _read_limit(file: Path) -> int | None:
    """In bytes; None without one."""
    text = read_if_any(file).strip()
    limit = int(text) if text.isdecimal() else UNLIMITED
    return limit if limit < UNLIMITED else None


def _read_used(file: Path, given_back: Iterable[str]) -> int | None:
    text = read_if_any(file).strip()
    if not text.isdecimal():
        return None
    stat = read_counts(file.parent / "memory.stat")
    return max(0, int(text) - sum(stat.get(name, 0) for name in given_back))
