"""Ending real process groups."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

import pytest

from holdfast.contract.page import END_SIGNAL
from holdfast_sidecar.launcher.rank_state import read_exit_code
from holdfast_sidecar.launcher.shutdown import await_killed, end_ranks

IGNORES = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
OBEYS = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))"
HOLDS = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: None)"
IN_C_CODE = "ctypes.PyDLL(None).sleep(600)"
LONG_S = 60.0


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def start(started: list[subprocess.Popen[str]], how: str) -> subprocess.Popen[str]:
    """A process in a session of its own that has begun to ignore, or obey."""
    process = subprocess.Popen(
        [sys.executable, "-c", f"{how}\nprint('up', flush=True)\nimport time; time.sleep(600)"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    started.append(process)
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


def test_all_are_asked_at_once_and_the_stubborn_are_killed_after_the_grace(
    started: list[subprocess.Popen[str]],
) -> None:
    stubborn = [start(started, IGNORES) for _ in range(2)]
    obedient = start(started, OBEYS)
    began = time.monotonic()
    end_ranks([p.pid for p in [*stubborn, obedient]], signal.SIGTERM, 0.5)
    assert time.monotonic() - began >= 0.5
    assert [read_exit_code(p.pid) for p in stubborn] == [-9, -9]
    assert read_exit_code(obedient.pid) == 5


def test_who_holds_sigterm_ends_at_once_as_others_would(
    started: list[subprocess.Popen[str]],
) -> None:
    holding = start(started, f"{HOLDS}\nimport ctypes; print('up', flush=True)\n{IN_C_CODE}")
    own_handler = start(started, OBEYS)
    end_ranks([holding.pid, own_handler.pid], signal.SIGTERM, LONG_S, holding=[holding.pid])
    assert read_exit_code(holding.pid) == -END_SIGNAL
    assert read_exit_code(own_handler.pid) == 5


def test_a_ctrl_c_is_left_to_who_holds_sigterm_only(
    started: list[subprocess.Popen[str]],
) -> None:
    holding = start(started, f"{HOLDS}\nsignal.signal(signal.SIGINT, lambda *_: sys.exit(6))")
    end_ranks([holding.pid], signal.SIGINT, LONG_S, holding=[holding.pid])
    assert read_exit_code(holding.pid) == 6


def test_nobody_waits_for_the_grace_when_all_have_ended(
    started: list[subprocess.Popen[str]],
) -> None:
    obedient = start(started, OBEYS)
    end_ranks([obedient.pid], signal.SIGTERM, LONG_S)
    assert read_exit_code(obedient.pid) == 5


@pytest.mark.timeout(30)
def test_a_stopped_rank_does_not_eat_the_grace(started: list[subprocess.Popen[str]]) -> None:
    frozen = start(started, OBEYS)
    frozen.send_signal(signal.SIGSTOP)
    end_ranks([frozen.pid], signal.SIGTERM, LONG_S)
    assert read_exit_code(frozen.pid) == -9


def test_what_a_rank_left_in_its_group_is_ended_too(started: list[subprocess.Popen[str]]) -> None:
    program = "import os, time\nif os.fork():\n    os._exit(0)\nprint(os.getpid(), flush=True)\n"
    leader = subprocess.Popen(
        [sys.executable, "-c", program + "time.sleep(600)"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    started.append(leader)
    assert leader.stdout is not None
    left = os.pidfd_open(int(leader.stdout.readline()))
    end_ranks([leader.pid], signal.SIGTERM, LONG_S)
    assert select.select([left], [], [], 10)[0], "it lives on"
    os.close(left)


def test_a_second_signal_cuts_the_grace_short(
    started: list[subprocess.Popen[str]], caplog: pytest.LogCaptureFixture
) -> None:
    class Again(Exception):
        pass

    def raise_again(number: int, frame: object) -> None:
        raise Again

    stubborn = start(started, IGNORES)
    before = signal.signal(signal.SIGALRM, raise_again)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(Again):
            end_ranks([stubborn.pid], signal.SIGTERM, LONG_S)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert "asked once more: 1 ranks are killed" in caplog.text
    assert read_exit_code(stubborn.pid) == -9


def test_who_waits_after_a_signal_is_told_for_what(
    started: list[subprocess.Popen[str]], caplog: pytest.LogCaptureFixture
) -> None:
    stubborn = start(started, IGNORES)
    end_ranks([stubborn.pid], signal.SIGTERM, 1.2, is_asked=True)
    assert "ending 1 ranks, which get up to 1.2 s; once more kills them" in caplog.text


def test_where_nobody_sent_a_signal_nobody_is_told_to_send_another(
    started: list[subprocess.Popen[str]], caplog: pytest.LogCaptureFixture
) -> None:
    end_ranks([start(started, IGNORES).pid], signal.SIGTERM, 1.2)
    assert "once more kills" not in caplog.text


@pytest.mark.parametrize("is_leaving", [False, True])
def test_a_rank_that_the_kernel_holds_is_named_and_waited_for_where_another_attempt_follows(
    is_leaving: bool, caplog: pytest.LogCaptureFixture, started: list[subprocess.Popen[str]]
) -> None:
    """The next attempt ran out of the device memory that the dead rank still held."""
    waits: list[float] = []

    def held(pids: Sequence[int], timeout_s: float) -> bool:
        waits.append(timeout_s)
        return False

    rank = start(started, IGNORES)
    await_killed([rank.pid], is_leaving, held)
    assert len(waits) == (1 if is_leaving else 2)
    assert f"held by the kernel: pid {rank.pid}; until it ends" in caplog.text
