"""Watching imports of modules made for the test."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.rank import importing


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    before, finders = set(sys.modules), list(sys.meta_path)
    yield tmp_path
    sys.meta_path[:] = finders
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_it_tells_before_the_module_runs_and_after_it_is_complete(modules: Path) -> None:
    (modules / "planted_a.py").write_text("import sys; sys.modules['heard'].append('runs')\n")
    heard: list[str] = []
    sys.modules["heard"] = heard  # type: ignore[assignment]
    importing.watch(
        "planted_a", before=lambda: heard.append("before"), after=lambda: heard.append("after")
    )
    module = importlib.import_module("planted_a")
    importlib.import_module("planted_a")
    assert heard == ["before", "runs", "after"]
    assert type(module.__loader__).__name__ == "SourceFileLoader"
    assert "exec_module" not in vars(module.__loader__)
    assert not [finder for finder in sys.meta_path if isinstance(finder, importing.ImportWatch)]


def test_an_import_that_fails_fails_as_ever_and_is_still_watched(modules: Path) -> None:
    source = modules / "planted_b.py"
    source.write_text("raise RuntimeError('planted')\n")
    heard: list[str] = []
    importing.watch("planted_b", before=lambda: None, after=lambda: heard.append("after"))
    with pytest.raises(RuntimeError, match="planted"):
        importlib.import_module("planted_b")
    assert heard == []
    source.write_text("x = 'a longer text, so that no cached bytecode is taken'\n")
    importlib.import_module("planted_b")
    assert heard == ["after"]


def test_other_modules_and_missing_ones_are_none_of_its_business(modules: Path) -> None:
    (modules / "planted_c.py").write_text("")
    heard: list[str] = []
    importing.watch("planted_none", lambda: heard.append("before"), lambda: heard.append("after"))
    importlib.import_module("planted_c")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("planted_none")
    assert heard == []


def test_everybody_who_watches_a_module_is_told_in_the_order_in_which_they_asked(
    modules: Path,
) -> None:
    (modules / "planted_d.py").write_text("")
    heard: list[str] = []
    for name in ("first", "second", "third"):
        importing.once("planted_d", lambda name=name: heard.append(name))  # type: ignore[misc]
    importlib.import_module("planted_d")
    assert heard == ["first", "second", "third"]
    assert not [finder for finder in sys.meta_path if isinstance(finder, importing.ImportWatch)]
