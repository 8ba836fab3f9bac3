from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from holdfast_sidecar.config.paths import find


def test_what_goes_while_it_is_looked_for_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job in ("ends", "stays"):
        (tmp_path / job / "node").mkdir(parents=True)
    scandir = os.scandir

    def scan(path: Any) -> Any:
        if str(path) == str(tmp_path / "ends"):  # it was found a moment ago
            (tmp_path / "ends" / "node").rmdir()
            (tmp_path / "ends").rmdir()
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scan)
    assert find(tmp_path, "*/*") == [tmp_path / "stays" / "node"]
    assert not (tmp_path / "ends").exists()


def test_nothing_is_found_where_nothing_is(tmp_path: Path) -> None:
    assert find(tmp_path / "none", "*/") == []


def test_directories_alone_are_asked_for_by_a_slash(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "a").mkdir()
    (tmp_path / "file").touch()
    assert find(tmp_path, "*/") == [tmp_path / "a", tmp_path / "b"]
