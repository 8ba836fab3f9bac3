"""The sidecar as a child: its parent is the first to know of its end."""

from __future__ import annotations

import errno
import json
import logging
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from holdfast_sidecar.config.paths import Paths
from holdfast_sidecar.launcher import sidecar_process
from holdfast_sidecar.launcher.sidecar_process import SidecarProcess
from holdfast_sidecar.lifecycle import write_last_word


class Sleeper(SidecarProcess):
    """In place of a sidecar: something that waits to be killed."""

    def _launch(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])


def test_its_end_is_told_before_another_one_is_started_and_not_when_it_was_asked_to_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar_process, "FIRST_PAUSE_S", 0.01)
    beside = Sleeper([], Paths(tmp_path, tmp_path))
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
    while beside._process in (first, None):
        threading.Event().wait(0.01)
    beside.stop()
    assert ended == [first.pid]


def test_one_that_can_not_be_started_is_tried_until_it_can_and_told_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sidecar_process, "FIRST_PAUSE_S", 0.01)

    class Refused(Sleeper):
        """The kernel refuses the second to fourth process, as with `pids.max`."""

        tries = 0

        def _launch(self) -> subprocess.Popen[bytes]:
            self.tries += 1
            if 1 < self.tries < 5:
                raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
            return super()._launch()

    beside = Refused([], Paths(tmp_path, tmp_path))
    beside.start()
    first = beside._process
    assert first is not None
    first.send_signal(signal.SIGKILL)
    for _ in range(1000):
        if beside.tries == 5:
            break
        threading.Event().wait(0.01)
    assert beside.tries == 5
    beside.stop()
    lines = [r.getMessage() for r in caplog.records if "can't be started" in r.getMessage()]
    assert lines == [
        "the sidecar can't be started, which is tried until it can: [Errno 11] Resource temporarily"
        " unavailable"
    ]


def test_a_launch_goes_on_where_no_sidecar_can_be_started_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar_process, "FIRST_PAUSE_S", 0.01)
    started = threading.Event()

    class Late(Sleeper):
        tries = 0

        def _launch(self) -> subprocess.Popen[bytes]:
            self.tries += 1
            if self.tries == 1:
                raise OSError(errno.ENOMEM, "Cannot allocate memory")
            started.set()
            return super()._launch()

    beside = Late([], Paths(tmp_path, tmp_path))
    beside.start()
    assert started.wait(10)
    beside.stop()


def test_that_it_serves_nothing_is_said_once_on_the_console_with_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sidecar_process, "FIRST_PAUSE_S", 0.01)
    said = threading.Event()

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "serves neither" in record.getMessage():
                said.set()

    class Mute(Sleeper):
        """Serves nothing, and leaves word of it."""

        def _launch(self) -> subprocess.Popen[bytes]:
            process = super()._launch()
            word = {"pid": process.pid, "unserved": "can't listen on 127.0.0.1:9: in use"}
            (tmp_path / "sidecar.json").write_text(json.dumps(word))
            return process

    beside = Mute([], Paths(tmp_path, tmp_path))
    sidecar_process.logger.addHandler(heard := Heard())
    try:
        beside.start()
        assert said.wait(10)
        first = beside._process
        assert first is not None
        first.send_signal(signal.SIGKILL)
        while beside._process in (first, None):
            threading.Event().wait(0.01)
    finally:
        beside.stop()
        sidecar_process.logger.removeHandler(heard)
    lines = [r.getMessage() for r in caplog.records if "serves neither" in r.getMessage()]
    assert lines == [
        "the sidecar of this node serves neither metrics nor a page, and no alert will ring for it:"
        " can't listen on 127.0.0.1:9: in use"
    ]


def test_a_sidecar_is_started_where_its_log_can_not_be_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")  # nothing can be made below it, by root neither
    beside = SidecarProcess(["--help"], Paths(tmp_path, tmp_path / "file" / "node"))
    process = beside._launch()
    assert process.wait(60) == 0


def test_the_last_word_of_a_sidecar_is_said_on_the_console(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    places = Paths(tmp_path, tmp_path)
    beside = Sleeper([], places)
    beside.start()
    write_last_word(places.shipping, "the checkpoint of step 7 came to nothing: rank 0: full")
    assert beside._process is not None
    beside._process.kill()
    beside.stop()
    assert "the checkpoint of step 7 came to nothing: rank 0: full" in caplog.messages
