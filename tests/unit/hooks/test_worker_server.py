"""Whether there is room for the threads of torch's server: also where limits can't be read."""

from __future__ import annotations

import _thread
import os
import threading

import pytest

from holdfast.rank import worker_server
from holdfast.rank.worker_server import LEAST_POOL, ROOM_FOR, can_start, has_room


@pytest.fixture(autouse=True)
def no_limit_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_server, "_rooms", lambda: iter([1 << 20]))
    monkeypatch.setattr(worker_server, "_address_space", lambda: float("inf"))


def allow(monkeypatch: pytest.MonkeyPatch, most: int) -> list[int]:
    """So many threads may be started; answers those that are still there."""
    alive: list[int] = []
    start = _thread.start_new_thread

    def limited(function, arguments):
        if len(alive) >= most:
            raise RuntimeError("can't start new thread")

        def run() -> None:
            function(*arguments)
            alive.pop()

        alive.append(1)
        return start(run, ())

    monkeypatch.setattr(_thread, "start_new_thread", limited)
    return alive


SHARE = ROOM_FOR * (LEAST_POOL + 1)


@pytest.mark.parametrize(("most", "told"), [(SHARE, True), (SHARE - 1, False), (0, False)])
def test_there_is_room_when_this_ranks_share_of_threads_was_there_at_once(
    monkeypatch, most, told
) -> None:
    alive = allow(monkeypatch, most)
    assert has_room(local_ranks=8, cpus=2) is told
    ended = threading.Event()
    while alive:
        ended.wait(0.001)


def test_cores_are_counted_as_the_library_counts_them(monkeypatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    monkeypatch.setattr(os, "sysconf", lambda name: {"SC_NPROCESSORS_ONLN": 65}[name])
    tried: list[int] = []

    def note(threads):
        tried.append(threads)
        return True

    monkeypatch.setattr(worker_server, "can_start", note)
    assert has_room(local_ranks=1)
    assert tried == [ROOM_FOR * 65]


def test_no_thread_is_left_behind(monkeypatch) -> None:
    alive = allow(monkeypatch, 100)
    assert can_start(100)
    ended = threading.Event()
    while alive:
        ended.wait(0.001)
