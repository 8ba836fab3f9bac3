"""How a writer gives way where the kernel deals the machine out by sessions."""

import errno
import threading
import time
from collections.abc import Callable

from holdfast_sidecar.linux.threads import SESSION_PRIORITY, Session


def test_the_whole_session_gives_way_until_somebody_waits(tmp_path):
    file = tmp_path / "autogroup"
    session = Session(file)
    session.stand_up()
    assert not file.exists()  # nothing is to be changed
    session.give_way()
    assert file.read_text() == str(SESSION_PRIORITY)
    session.stand_up()
    assert file.read_text() == "0"


def test_giving_way_has_an_end(tmp_path, monkeypatch):
    ends: list[Callable[[], None]] = []

    class Timer:
        def __init__(self, seconds, call):
            self.cancel = lambda: ends.remove(call)
            self.start = lambda: ends.append(call)

    monkeypatch.setattr(threading, "Timer", Timer)
    session = Session(tmp_path / "autogroup")
    session.give_way()
    session.give_way()  # the time is counted anew
    (end,) = ends
    end()
    assert (tmp_path / "autogroup").read_text() == "0"


def test_a_kernel_that_takes_no_change_so_soon_is_asked_again(monkeypatch):
    class File:
        refusals = 2
        said = ""

        def write_text(self, text):
            if self.refusals:
                self.refusals -= 1
                raise BlockingIOError(errno.EAGAIN, "too soon")
            self.said = text

    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    file = File()
    Session(file).give_way()  # type: ignore[arg-type]
    assert file.said == str(SESSION_PRIORITY)
    file = File()
    file.refusals = 10**9
    Session(file).give_way()  # type: ignore[arg-type]  # given up in the end
    assert file.said == ""


def test_a_kernel_without_such_sessions_is_left_alone(tmp_path):
    Session(tmp_path / "none" / "autogroup").give_way()
