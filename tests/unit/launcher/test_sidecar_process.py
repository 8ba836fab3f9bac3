"""The sidecar as a child: its parent is the first to know of its end."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast_sidecar.launcher import sidecar_process
from holdfast_sidecar.launcher.sidecar_process import SidecarProcess


class Sleeper(SidecarProcess):
    """In place of a sidecar: something that waits to be killed."""

    def _launch(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])


def test_its_end_is_told_before_another_one_is_started_and_not_when_it_was_asked_to_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar_process, "FIRST_PAUSE_S", 0.01)
    beside = Sleeper([], tmp_path / "log", tmp_path / "shipping")
    ended: list[int] = []
    told = threading.Event()

    def note(pid: int) -> None:
        ended.append(pid)
        told.set()

    beside.tell_end = note
    beside.start()
    first = beside._process
    assert first is not None
    first.send_signal(signal.SIGKILL)
    assert told.wait(10)
    assert ended == [first.pid]
    while beside._process is first:
        threading.Event().wait(0.01)
    beside.stop()
    assert ended == [first.pid]
