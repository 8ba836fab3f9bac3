"""Names in the code are those of docs/glossary.md."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ("hooks/holdfast", "sidecar/holdfast_sidecar")

WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def avoided() -> set[str]:
    """The words of the left column."""
    table = (ROOT / "docs/glossary.md").read_text().partition("| not | but |")[2]
    rows = re.findall(r"^\| ([a-z, ]+) \| [a-z, ]+ \|$", table, re.MULTILINE)
    return {word for row in rows for word in row.split(", ")}


def words_of(name: str) -> list[str]:
    return [word.lower() for word in WORD.findall(name)]


def names_in(source: str) -> Iterator[str]:
    """Classes and functions that others can import."""
    for node in ast.parse(source).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            yield node.name


def metaphors(package: Path) -> list[str]:
    words, found = avoided(), []
    for path in sorted(package.rglob("*.py")):
        names = [path.stem, path.parent.name, *names_in(path.read_text())]
        found += [f"{path.name}: {name}" for name in names if words & {*words_of(name)}]
    return found


def classes_met_twice(package: Path) -> list[str]:
    """Public classes of modules that others import."""
    counted: Counter[str] = Counter()
    for path in package.rglob("*.py"):
        body = ast.parse(path.read_text()).body
        counted.update(node.name for node in body if isinstance(node, ast.ClassDef))
    return sorted(name for name, count in counted.items() if count > 1 and name[0] != "_")


def test_the_glossary_names_what_is_avoided() -> None:
    assert {"desk", "deeds", "lemon", "mouth", "parting", "standing"} <= avoided()


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_class_or_function_is_called_by_a_metaphor(package: str) -> None:
    assert metaphors(ROOT / package) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_public_class_name_occurs_twice(package: str) -> None:
    assert classes_met_twice(ROOT / package) == []


def test_a_planted_name_is_seen(tmp_path: Path) -> None:
    (tmp_path / "storage_desk.py").write_text("class Fence: ...\ndef is_lemon() -> None: ...\n")
    (tmp_path / "fence.py").write_text("class Fence: ...\nclass RankStanding: ...\n")
    assert metaphors(tmp_path) == [
        "fence.py: RankStanding",
        "storage_desk.py: storage_desk",
        "storage_desk.py: is_lemon",
    ]
    assert classes_met_twice(tmp_path) == ["Fence"]
