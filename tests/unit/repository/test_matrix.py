"""The script that tries each promised Python and torch: what breaks off loses no row."""

from __future__ import annotations

import datetime
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripts import matrix

THIS = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder that is searched; the home directory is the one beside it."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / "bin"


def write_shim(path: Path, version: str) -> None:
    shim = path / f"python{version}"
    shim.write_text("#!/bin/sh\necho 'command not found' >&2\nexit 127\n")
    shim.chmod(0o755)


def test_an_interpreter_that_only_says_that_it_is_not_there_is_passed_over(path: Path) -> None:
    write_shim(path, THIS)
    assert matrix.interpreter(THIS) == ""
    kept = path.parent / ".pyenv" / "versions" / f"{THIS}.0" / "bin"
    kept.mkdir(parents=True)
    (kept / f"python{THIS}").symlink_to(sys.executable)
    assert matrix.interpreter(THIS) == str(kept / f"python{THIS}")


def test_an_interpreter_on_the_path_that_runs_is_taken(path: Path) -> None:
    (path / f"python{THIS}").symlink_to(sys.executable)
    assert matrix.interpreter(THIS) == str(path / f"python{THIS}")


def test_a_pair_that_cannot_be_installed_is_a_row_that_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def install(python: str, torch: str, folder: Path) -> str:
        if torch == matrix.TORCHES[0]:
            raise subprocess.CalledProcessError(1, ["pip"], stderr="noise\nERROR: no torch | here")
        return python

    monkeypatch.setattr(matrix, "interpreter", lambda version: version if version < "3.13" else "")
    monkeypatch.setattr(matrix, "install", install)
    monkeypatch.setattr(matrix, "run", lambda python: matrix.Row(python, "2", ("passed 1",) * 3))
    rows = list(matrix.run_all())
    assert [row.python for row in rows] == ["3.11", "3.11", "3.11", "3.12"]
    assert rows[0].results == ("not installed: ERROR: no torch / here", "not run", "not run")
    assert rows[1].results == ("passed 1",) * 3


def test_an_environment_without_torch_is_a_row_that_says_so(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho \"No module named 'torch'\" >&2\nexit 1\n")
    python.chmod(0o755)
    assert matrix.run(str(python)).results[0] == "not installed: No module named 'torch'"


def test_rows_are_written_before_the_next_one_is_run(tmp_path: Path) -> None:
    def found() -> Iterator[matrix.Row]:
        yield matrix.Row("3.11.7", "2.13.0", ("passed 1",) * 3)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        matrix.written(found(), tmp_path / "matrix.md")
    assert "| 3.11.7 | 2.13.0 | passed 1 |" in (tmp_path / "matrix.md").read_text()


def test_a_python_that_is_here_and_was_left_out_is_not_said_to_be_absent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(matrix, "interpreter", lambda version: version if version < "3.13" else "")
    rows = [matrix.Row("3.11.7", "2.13.0", ("passed 1",) * 3)]
    told = matrix.page(rows, datetime.date(2026, 11, 28))
    assert told.endswith(
        "\nNot run: Python 3.12.\n\nNot run, as there was no such interpreter: Python 3.13.\n"
    )
