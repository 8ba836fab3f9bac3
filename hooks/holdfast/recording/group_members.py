"""Who is in which process group, for the sidecar: a small file beside the page.

The flight recorder names groups, and not on every backend who belongs to them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.recording.sidecar_files import write_beside


def write_members(world: Any, path: Path, slots: Mapping[str, int]) -> None:
    """Write name -> title, global ranks in the order of their ranks in the group, slot, digest.

    world: torch's `distributed_c10d._world`, which knows the groups this rank is in. slots: of
    those that are timed apart, by name; the others' is null.
    """
    groups = {}
    for group, numbers in dict(world.pg_group_ranks).items():
        if group in world.pg_names:
            name = str(world.pg_names[group])
            ranks = sorted(numbers, key=numbers.__getitem__)
            groups[name] = {
                "title": str(getattr(group, "group_desc", "") or ""),
                "ranks": ranks,
                "slot": slots.get(name),
                "digest": digest(ranks),
            }
    write_beside(path, groups)


def digest(ranks: Sequence[int]) -> str:
    """Short, and the same on all of a group's members, whatever they call it."""
    return hashlib.sha256(",".join(map(str, ranks)).encode()).hexdigest()[:16]
