"""How the code is laid out: few rooms, chapters in them, no module that needs one that needs it."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from bench import house

ROOT = Path(__file__).parents[3]
SIDECAR, HOOKS = ROOT / "sidecar/holdfast_sidecar", ROOT / "hooks/holdfast"

MOST_LINES = 122_500
"""Of sidecar, hooks, bench, testing and scripts together. A ratchet: raised only in a commit that
says why."""


def folders(package: Path) -> list[str]:
    return sorted(path.name for path in package.iterdir() if any(path.glob("*.py")))


def imports(package: Path) -> Mapping[str, set[str]]:
    """Module -> modules of this package that it imports while it is imported."""
    paths = {_name(package, path): path for path in package.rglob("*.py")}
    return {
        name: {found for found in _imported(path, set(paths)) if found != name}
        for name, path in paths.items()
    }


def _name(package: Path, path: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(path: Path, modules: set[str]) -> Iterator[str]:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if whole in modules or node.module in modules:
                    yield whole if whole in modules else node.module


def test_the_sidecar_has_fourteen_rooms_and_chapters_in_them() -> None:
    (counted,) = house.count()
    kept = ("modules", "rooms", "at the top", "ignored imports")
    assert {name: counted[name] for name in kept if counted[name] > house.LIMITS[name]} == {}


def test_the_hooks_have_eight_rooms_and_one_is_the_contract() -> None:
    assert len(list(HOOKS.glob("*.py"))) <= 10
    assert len(folders(HOOKS)) <= 8
    assert "contract" in folders(HOOKS)


@pytest.mark.parametrize("package", [SIDECAR, HOOKS])
def test_no_modules_import_each_other(package: Path) -> None:
    TopologicalSorter(imports(package)).prepare()


def test_a_planted_cycle_is_seen(tmp_path: Path) -> None:
    package = tmp_path / "pack"
    package.mkdir()
    (package / "one.py").write_text("from pack import two\n")
    (package / "two.py").write_text("from pack.one import it\n")
    with pytest.raises(CycleError):
        TopologicalSorter(imports(package)).prepare()


@pytest.mark.parametrize("package", [SIDECAR, HOOKS, ROOT / "testing", ROOT / "bench"])
def test_no_module_gives_a_name_two_meanings(package: Path) -> None:
    """Modules were merged; a constant that is set twice has the last value for all."""
    assert [found for path in package.rglob("*.py") for found in twice_in(path)] == []


def twice_in(path: Path) -> Iterator[str]:
    seen: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        for name in _defined(node):
            if name in seen:
                yield f"{path.name}: {name}"
            seen.add(name)


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
    return [target.id for target in targets if isinstance(target, ast.Name)]


def test_a_planted_second_meaning_is_seen(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("LIMIT = 1\nOTHER: int = 2\n\ndef f(): ...\n\nLIMIT = 3\n")
    assert [*twice_in(tmp_path / "one.py")] == ["one.py: LIMIT"]


def test_there_is_no_more_code_than_there_was() -> None:
    (counted,) = house.count()
    assert counted["lines"] <= MOST_LINES


def test_how_long_it_takes_is_recorded_of_tests_that_are_there() -> None:
    recorded = json.loads((ROOT / "tests/durations.json").read_text())
    assert [name for name in recorded if not (ROOT / name).exists()] == []
