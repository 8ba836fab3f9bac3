"""How a child begins: it dies with its parent, and nothing comes between its frames."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from testing.fake_nvml.driver import FakeNvml

import holdfast_sidecar
from holdfast_sidecar.components.gpu.nvml.child_io import FrameReader
from holdfast_sidecar.components.gpu.nvml.process import MAIN, command, make_board

PARENT = """
import sys, time
from holdfast_sidecar.components.gpu.nvml.process import command, start
print(start(command(sys.argv[1], 0.1), False).process.pid, flush=True)
time.sleep(600)
"""

NOISE = """
import os, sys
from holdfast_sidecar.components.gpu.nvml.__main__ import own_stdout
pipe = own_stdout()
os.write(1, b"the library says hello")
print("so does Python", flush=True)
os.write(pipe, b"a frame")
"""


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def said_by(*arguments: str) -> tuple[list[bytes], int]:
    """What a child says, and its exit code."""
    board = make_board()
    try:
        done = subprocess.run(
            (*arguments, str(board), str(os.getpid()), os.pathsep.join(sys.path)),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=(board,),
            timeout=30,
            check=False,
        )
    finally:
        os.close(board)
    return FrameReader().cut(done.stdout), done.returncode


def test_a_child_dies_with_a_parent_that_is_killed(fake_nvml: FakeNvml) -> None:
    fake_nvml.hang_all()
    for kind in ("poll", "events"):
        parent = subprocess.Popen((sys.executable, "-c", PARENT, kind), stdout=subprocess.PIPE)
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        until = time.monotonic() + 10.0
        while fake_nvml.asked("nvmlInitWithFlags") < ("poll", "events").index(kind) + 1:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert is_alive(child)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        parent.stdout.close()
        while is_alive(child):
            assert time.monotonic() < until
            time.sleep(0.01)


def test_a_child_whose_parent_is_gone_already_does_not_begin() -> None:
    nobody = (sys.executable, "-I", "-S", str(MAIN), "poll", "1.0", "0", "1", "")
    assert subprocess.run(nobody, stdout=subprocess.DEVNULL, check=False).returncode == 1


def test_what_goes_wrong_in_a_child_is_its_last_word() -> None:
    said, code = said_by(*command("poll", 1.0)[:-1], "soon")
    assert said == [b"failed ValueError: could not convert string to float: 'soon'"]
    assert code == 1


def test_what_a_library_prints_does_not_come_between_the_frames() -> None:
    noisy = (sys.executable, "-c", NOISE)
    done = subprocess.run(noisy, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    assert done.stdout == b"a frame"


def test_modules_are_found_where_the_parent_finds_them(fake_nvml: FakeNvml) -> None:
    """Isolated and without site-packages, a child would find none by itself."""
    assert str(Path(holdfast_sidecar.__file__).parents[1]) in map(os.path.abspath, sys.path)
    fake_nvml.unload()
    said, _ = said_by(*command("events", 0.0))
    assert said == [b"absent nvmlInitWithFlags: code 9 of the fake driver"]
