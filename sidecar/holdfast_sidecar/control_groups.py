"""Control groups, version 1 and 2: where they are mounted, which of them a process is in, and what
their files say. Values that can't be read, or are no numbers, are absent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from holdfast_sidecar.kernel_files import read_if_any

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    """Where a cgroup hierarchy is mounted, and which of its cgroups is seen there."""

    root: str
    point: Path
    is_unified: bool
    options: frozenset[str]

    def place(self, cgroup: str) -> Path:
        """The directory of this cgroup."""
        inside = self.root != "/" and (cgroup + "/").startswith(self.root + "/")
        return self.point / (cgroup[len(self.root) :] if inside else cgroup).lstrip("/")


@dataclass(frozen=True)
class Place:
    """The directory of a cgroup that may hold a controller's files, and of which version."""

    directory: Path
    is_unified: bool


def parse_mounts(mountinfo: str) -> list[Mount]:
    """The cgroup hierarchies among the mounts of /proc/PID/mountinfo (proc(5))."""
    found = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) > 4 and len(kind) > 2 and kind[0] in ("cgroup", "cgroup2"):
            options = frozenset(kind[2].split(","))
            point = Path(plain(fields[4]))
            found.append(Mount(plain(fields[3]), point, kind[0] == "cgroup2", options))
    return found


def find_places(controller: str, cgroups: str, mounts: Iterable[Mount]) -> list[Place]:
    """Where the controller's files may be, of the process with this /proc/PID/cgroup: its own group
    first, then those above, whose limits count too.

    Where both versions are mounted, the one that has the controller is version 1.
    """
    mounts = list(mounts)
    old, new = [], []
    for line in cgroups.splitlines():
        number, controllers, cgroup = (*line.split(":", 2), "", "")[:3]
        if controller in controllers.split(","):
            v1 = (m for m in mounts if not m.is_unified and controller in m.options)
            old += [Place(at, False) for mount in v1 for at in _upwards(mount, cgroup)]
        elif number == "0" and not controllers:
            v2 = (m for m in mounts if m.is_unified)
            new += [Place(at, True) for mount in v2 for at in _upwards(mount, cgroup)]
    return [*old, *new]


def plain(field: str) -> str:
    """A path as mountinfo and mountstats write it, with blanks written out."""
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), field)


def read_counts(file: Path) -> dict[str, int]:
    """A file of `name value` lines; what is no number is left out."""
    pairs = (line.split() for line in read_if_any(file).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def _upwards(mount: Mount, cgroup: str) -> Iterator[Path]:
    nearest = mount.place(cgroup)
    yield nearest
    yield from (above for above in nearest.parents if above.is_relative_to(mount.point))
