"""Which modules move where in one run, from map.toml, tests.toml and clashes.toml."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

PACKAGE = "holdfast_sidecar"
BASE = f"sidecar/{PACKAGE}"
HOOKS = "hooks/holdfast"
OUTSIDE = ("testing", "scripts", "hooks")
"""New rooms that do not lie in the package."""
TESTS = "tests/unit/"
ROOTS = ("sidecar", "hooks", "tests", "bench", "scripts", "dashboards", "testing")


def path_of(entry: str) -> str:
    """Path in the repository of an entry of the map."""
    return entry if entry.split("/")[0] in OUTSIDE else f"{BASE}/{entry}"


def module_of(path: str) -> str:
    """Dotted name of a module by its path in the repository."""
    for root in ("sidecar/", "hooks/"):
        path = path.removeprefix(root)
    return path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


@dataclass(frozen=True)
class Plan:
    """What moves. Paths are those in the repository."""

    repository: Path
    parts: dict[str, list[str]] = field(default_factory=dict)
    """New path -> the old ones that it is made of, in reading order."""
    new_path: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    """New path -> old one of what tests compare with and is no module."""
    module: dict[str, str] = field(default_factory=dict)
    """Old dotted name -> new one."""
    renamed: dict[tuple[str, str], str] = field(default_factory=dict)
    """(old module, name) -> another name, where two would meet."""
    modules: frozenset[str] = frozenset()
    """All that there are before the move."""


def read_plan(repository: Path, room: str, here: Path = Path(__file__).parent) -> Plan:
    """The plan of one room; `top`: modules that lie in no room."""
    table = f"{room}.toml" if room in ("hooks", "again", "names") else "map.toml"
    entries: dict[str, list[str]] = tomllib.loads((here / table).read_text())
    clashes: dict[str, str] = tomllib.loads((here / "clashes.toml").read_text())
    in_room = {
        path_of(new): [path_of(old) for old in olds]
        for new, olds in entries.items()
        if (_is_in(new, room) or room in ("again", "names")) and (olds != [new] or room == "names")
    }
    tests: dict[str, str] = tomllib.loads((here / "tests.toml").read_text())
    moved = {new: old for new, old in tests.items() if _is_in(new.removeprefix(TESTS), room)}
    in_room |= {new: [old] for new, old in moved.items() if new.endswith(".py")}
    new_path = {old: new for new, olds in in_room.items() for old in olds}
    renamed = {}
    for place, to in clashes.items():
        old, name = place.split(":")
        if path_of(old) in new_path:
            renamed[module_of(path_of(old)), name] = to
    return Plan(
        repository,
        in_room,
        new_path,
        {new: old for new, old in moved.items() if not new.endswith(".py")},
        {module_of(old): module_of(new) for old, new in new_path.items()},
        renamed,
        frozenset(module_of(path) for path in python_files(repository)),
    )


def _is_in(new: str, room: str) -> bool:
    return "/" not in new if room == "top" else new.startswith(f"{room}/")


def python_files(repository: Path) -> list[str]:
    """Paths of all Python files of the project, in order."""
    found = (path for root in ROOTS for path in (repository / root).rglob("*.py"))
    return sorted(str(path.relative_to(repository)) for path in found)
