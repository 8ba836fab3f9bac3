"""Who is in which process group, for the sidecar: a small file beside the page.

The flight recorder names groups, and not on every backend who belongs to them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write_members(world: Any, path: Path) -> None:
    """Write name -> title and global ranks, in the order of their ranks in the group.

    world: torch's `distributed_c10d._world`, which knows the groups this rank is in.
    """
    groups = {
        str(world.pg_names[group]): {
            "title": str(getattr(group, "group_desc", "") or ""),
            "ranks": sorted(ranks, key=ranks.__getitem__),
        }
        for group, ranks in dict(world.pg_group_ranks).items()
        if group in world.pg_names
    }
    draft = path.with_name(path.name + ".new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(draft, flags, 0o600), "w") as file:
        json.dump(groups, file, separators=(",", ":"))
    draft.replace(path)
