"""What the sidecar and its children print is bounded, also while they run."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from holdfast_sidecar.config.paths import Paths
from holdfast_sidecar.launcher import sidecar_process
from holdfast_sidecar.launcher.sidecar_process import SidecarLog, SidecarProcess, rotate

PATIENCE_S = 20.0


def test_what_is_too_large_is_moved_and_whoever_has_it_open_goes_on(tmp_path: Path) -> None:
    log, earlier = tmp_path / "sidecar.log", tmp_path / "sidecar.log.1"
    with log.open("ab", buffering=0) as sidecar, log.open("ab", buffering=0) as child:
        sidecar.write(b"old" * 50)
        child.write(b"new" * 50)
        rotate(log, earlier, most_bytes=200)
        assert log.read_bytes() == b""
        assert earlier.read_bytes() == (b"old" * 50 + b"new" * 50)[-200:]
        child.write(b"child\n")
        sidecar.write(b"sidecar\n")
    assert log.read_bytes() == b"child\nsidecar\n"
    assert earlier.stat().st_mode & 0o777 == 0o600


def test_what_is_small_stays_where_it_is(tmp_path: Path) -> None:
    log = tmp_path / "sidecar.log"
    rotate(log, tmp_path / "sidecar.log.1", most_bytes=200)
    log.write_bytes(b"x" * 200)
    rotate(log, tmp_path / "sidecar.log.1", most_bytes=200)
    assert [path.name for path in tmp_path.iterdir()] == ["sidecar.log"]


def test_a_link_to_something_else_is_left_alone(tmp_path: Path) -> None:
    other, log = tmp_path / "other", tmp_path / "sidecar.log"
    other.write_bytes(b"x" * 300)
    log.symlink_to(other)
    with pytest.raises(OSError, match="symbolic link"):
        rotate(log, tmp_path / "sidecar.log.1", most_bytes=200)
    assert other.stat().st_size == 300


@pytest.mark.parametrize(("size", "left"), [(300, 300), (500, 0)])
def test_on_a_full_disk_it_is_emptied_only_once_it_is_twice_as_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, left: int
) -> None:
    def full(path: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", full)
    log = tmp_path / "sidecar.log"
    log.write_bytes(b"x" * size)
    log_of_before = tmp_path / "sidecar.log.1"
    if left:
        with pytest.raises(OSError, match="No space"):
            rotate(log, log_of_before, most_bytes=200)
    else:
        rotate(log, log_of_before, most_bytes=200)
    assert log.stat().st_size == left


class Chatterer(SidecarProcess):
    """In place of a sidecar: something whose child prints without end."""

    def _launch(self) -> subprocess.Popen[bytes]:
        chatter = (
            "import sys, time\n"
            "for _ in range(10**5): print('x' * 999, flush=True); time.sleep(0.0002)"
        )
        parent = (
            f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {chatter!r}])"
        )
        with self._log.open() as log:
            return subprocess.Popen(
                [sys.executable, "-S", "-c", parent], stdout=log, stderr=log, process_group=0
            )


def test_a_child_of_the_sidecar_that_prints_without_end_does_not_fill_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar_process, "LOOK_S", 0.02)
    monkeypatch.setattr(
        sidecar_process, "rotate", lambda path, earlier: rotate(path, earlier, most_bytes=100_000)
    )
    places = Paths(tmp_path, tmp_path)
    beside = Chatterer([], places)
    beside.start()
    process = beside._process
    assert process is not None
    try:
        end_s = time.monotonic() + PATIENCE_S
        while not places.earlier_sidecar_log.exists():
            assert time.monotonic() < end_s, "it was not rotated"
            threading.Event().wait(0.01)
        sizes = []
        for _ in range(50):
            sizes.append(places.sidecar_log.stat().st_size)
            threading.Event().wait(0.01)
        assert max(sizes) < 2_000_000
        assert places.earlier_sidecar_log.stat().st_size <= 1_200_000
    finally:
        os.killpg(process.pid, 9)
        beside.stop()


def test_one_that_is_too_large_already_is_rotated_when_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sidecar_process, "rotate", lambda path, earlier: rotate(path, earlier, most_bytes=100)
    )
    log = SidecarLog(tmp_path / "sidecar.log", tmp_path / "sidecar.log.1")
    (tmp_path / "sidecar.log").write_bytes(b"x" * 300)
    log.open().close()
    log.close()
    assert (tmp_path / "sidecar.log").stat().st_size == 0
    assert (tmp_path / "sidecar.log.1").stat().st_size == 100
