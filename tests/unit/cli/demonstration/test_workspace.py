from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from holdfast_sidecar.cli.demonstration import job
from holdfast_sidecar.cli.demonstration.job import PREFIX, open_workspace, remove_leftovers
from holdfast_sidecar.config.settings import PathSettings

KILLED = """
import os, signal, sys
from pathlib import Path
from holdfast_sidecar.cli.demonstration.job import claimed
path = Path(sys.argv[1])
path.mkdir()
with claimed(path):
    (path / "slot").write_bytes(bytes(4096))
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def rooms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """The temporary directory and shared memory of a machine of its own."""
    temporary, shared = tmp_path / "tmp", tmp_path / "shm"
    temporary.mkdir()
    shared.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(job, "PathSettings", lambda: PathSettings(shm_dir=str(shared)))
    return temporary, shared


def inside(rooms: tuple[Path, Path]) -> list[int]:
    return [len(list(room.iterdir())) for room in rooms]


def leave(path: Path) -> None:
    """What a demonstration leaves that was killed."""
    subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert (path / "slot").exists()


def test_both_directories_go_with_the_demonstration(rooms: tuple[Path, Path]) -> None:
    with open_workspace(None) as opened:
        assert inside(rooms) == [1, 1]
        assert (opened.root.parent, opened.shm.parent) == rooms
    assert inside(rooms) == [0, 0]


def test_what_is_to_be_kept_stays(rooms: tuple[Path, Path], tmp_path: Path) -> None:
    with open_workspace(tmp_path / "kept") as opened:
        assert inside(rooms) == [0, 1]
    assert (opened.settings_file.exists(), inside(rooms)) == (True, [0, 0])


def test_the_next_one_removes_what_was_left_and_nothing_of_one_that_lives(
    rooms: tuple[Path, Path],
) -> None:
    for room in rooms:
        leave(room / f"{PREFIX}killed")
    with open_workspace(None) as living:
        assert inside(rooms) == [1, 1]
        with open_workspace(None):
            assert inside(rooms) == [2, 2]
        assert living.settings_file.exists()
        assert living.shm.is_dir()


def test_what_bears_no_lock_or_only_looks_alike_stays(tmp_path: Path) -> None:
    leave(tmp_path / "elsewhere")
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / f"{PREFIX}begun").mkdir()
    (tmp_path / f"{PREFIX}file").touch()
    assert remove_leftovers(tmp_path) == []
    assert (tmp_path / "elsewhere/slot").exists()
