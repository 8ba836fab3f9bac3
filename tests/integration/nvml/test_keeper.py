"""Children that answer, hang, die and talk nonsense: real processes, the clock is ours."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast_sidecar.components.gpu.nvml.probe import GpuProbe, NvmlFailedError
from holdfast_sidecar.components.gpu.nvml.process import (
    ABSENT_PAUSE_S,
    START_S,
    STUCK_S,
    ChildSupervisor,
)
from holdfast_sidecar.components.gpu.nvml.wire import Message
from holdfast_sidecar.components.gpu.readings import GpuReading

CHILD = Path(__file__).with_name("scripted_child.py")
PATIENCE_S = 2.0


class Scene:
    """A keeper with a scripted child, looked at on a clock of our own."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.keeper = ChildSupervisor("poll", (), PATIENCE_S)
        self.probe = GpuProbe(self.keeper)

    def play(self, *script: str) -> None:
        """What the next child will do."""
        self.keeper._command = (sys.executable, str(CHILD), *script)

    def look_until(self, is_so: Callable[[list[Message]], object]) -> list[Message]:
        """Look again and again, while no time passes on our clock."""
        until = time.monotonic() + 10.0
        heard: list[Message] = []
        while not is_so(heard):
            assert time.monotonic() < until, f"never came true: {heard}, {self.keeper.custody}"
            heard += self.keeper.look(self.now_s)
            time.sleep(0.005)
        return heard

    def read(self) -> GpuReading | None:
        return self.probe.read(self.now_s)

    def read_until(self, is_so: Callable[[GpuReading | None], object]) -> GpuReading:
        """The first reading of which this is true, while no time passes on our clock."""
        until = time.monotonic() + 10.0
        while not is_so(reading := self.read()):
            assert time.monotonic() < until, f"never came true: {reading}, {self.keeper.custody}"
            time.sleep(0.005)
        assert reading is not None
        return reading

    def pass_(self, seconds: float) -> None:
        """Look twice a second meanwhile."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s = min(self.now_s + 0.5, until_s)
            self.keeper.look(self.now_s)

    def fail_until(self, text: str) -> None:
        """Read until it fails, which is with this text."""
        until = time.monotonic() + 10.0
        error = ""
        while not error:
            assert time.monotonic() < until, "did not fail"
            time.sleep(0.005)
            error = self.failure()
        assert text in error

    def failure(self) -> str:
        """Why reading fails; empty: it does not."""
        try:
            self.read()
        except NvmlFailedError as error:
            return str(error)
        return ""


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.keeper.close()


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_nothing_is_known_before_the_first_answer_and_then_the_newest_is_handed_out(
    scene: Scene,
) -> None:
    scene.play("answer")
    assert scene.read() is None
    reading = scene.read_until(bool)
    assert [gpu.uuid for gpu in reading.gpus] == ["GPU-0"]
    assert (reading.expected, reading.stale_since_s) == (1, None)


def test_one_that_hangs_is_killed_and_what_it_said_is_stale_until_another_answers(
    scene: Scene,
) -> None:
    scene.play("answer_once_and_hang")
    scene.read_until(bool)
    answered_s, (pid,) = scene.now_s, scene.keeper.pids
    scene.play("answer")
    scene.pass_(PATIENCE_S + 0.5)
    reading = scene.read_until(lambda reading: reading and reading.silence)
    assert reading.stale_since_s == answered_s
    (gpu,) = reading.gpus
    assert (gpu.uuid, gpu.values, gpu.refused, gpu.users) == ("GPU-0", {}, {}, None)
    assert reading.silence is not None
    assert reading.silence.asking == "nvmlDeviceGetFieldValues of GPU 0"
    scene.look_until(lambda _: not is_alive(pid) and scene.keeper.custody.stuck == 0)
    scene.pass_(1.0)
    fresh = scene.read_until(lambda reading: reading and not reading.stale_since_s)
    assert fresh.gpus[0].values


def test_one_that_never_answers_is_told_soon_and_left_alone_for_a_while(scene: Scene) -> None:
    scene.play("hang_unless", "/nowhere")
    scene.read()
    (pid,) = scene.keeper.pids
    scene.look_until(lambda _: scene.keeper._child.note.asking)  # type: ignore[union-attr]
    scene.pass_(PATIENCE_S + 0.5)
    reading = scene.read()
    assert reading is not None
    assert (reading.is_present, reading.stale_since_s) == (False, 1000.0)
    assert scene.keeper.pids == (pid,)
    scene.pass_(START_S)
    scene.look_until(lambda _: not is_alive(pid))


def test_at_most_one_replacement_beside_one_that_can_not_be_killed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A SIGKILL that does nothing yet stands for one that hangs in the kernel."""
    monkeypatch.setattr(subprocess.Popen, "send_signal", lambda process, number: None)
    scene.play("hang_unless", str(tmp_path / "mended"))
    scene.read()
    scene.pass_(START_S + 1.0)
    assert (scene.keeper.custody.stuck, len(scene.keeper.pids)) == (1, 1)
    scene.pass_(1000.0)
    reading = scene.read()
    assert reading is not None
    assert reading.silence is not None
    assert (reading.silence.stuck, len(scene.keeper.pids)) == (2, 2)

    (tmp_path / "mended").touch()
    scene.now_s += STUCK_S
    for pid in scene.keeper.pids:
        os.kill(pid, signal.SIGKILL)
    assert scene.read_until(lambda reading: reading and reading.gpus).stale_since_s is None
    assert (scene.keeper.custody.stuck, len(scene.keeper.pids)) == (0, 1)
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("fail", "Unknown Error"),
        ("write_garbage", "no frame begins like this"),
        ("write_nonsense", "makes no sense"),
        ("write_half_and_die", "exited with code 0"),
        ("answer_once_and_die", "SIGSEGV"),
    ],
)
def test_one_that_fails_is_a_failure_with_its_reason_and_is_begun_again(
    scene: Scene, script: str, text: str
) -> None:
    scene.play(script)
    scene.fail_until(text)
    scene.look_until(lambda _: not scene.keeper.pids)
    scene.fail_until(text)
    scene.play("answer")
    scene.now_s += 1.0
    scene.look_until(lambda heard: heard)
    assert scene.read_until(bool).gpus


def test_without_a_driver_no_child_is_left_and_none_comes_for_a_minute(scene: Scene) -> None:
    scene.play("answer")
    scene.read_until(bool)
    os.kill(scene.keeper.pids[0], signal.SIGKILL)
    scene.play("be_absent")
    scene.fail_until("SIGKILL")
    scene.now_s += 1.0
    scene.look_until(lambda _: scene.keeper.is_absent)
    reading = scene.read()
    assert reading is not None
    assert (reading.is_present, reading.gpus, reading.expected) == (False, (), 1)
    scene.look_until(lambda _: not scene.keeper.pids)
    scene.pass_(ABSENT_PAUSE_S - 1.0)
    assert not scene.keeper.pids
    scene.play("answer")
    scene.pass_(1.0)
    assert scene.read_until(lambda reading: reading and reading.is_present)


def test_a_program_that_is_not_there_is_a_failure(scene: Scene) -> None:
    scene.keeper._command = ("/nowhere/python",)
    scene.fail_until("could be started")


def test_a_child_inherits_its_pipe_and_its_board_alone(scene: Scene) -> None:
    with (
        CHILD.open() as ours,
    ):
        os.set_inheritable(ours.fileno(), True)
        scene.play("tell")
        scene.fail_until("0,1,2,")
        told = scene.keeper.trouble.split(",")
    assert len(told) == 5  # the fifth is the listing's own


def test_closing_leaves_no_child(scene: Scene) -> None:
    scene.play("answer_once_and_hang")
    scene.read_until(bool)
    (pid,) = scene.keeper.pids
    scene.keeper.close()
    assert not is_alive(pid)
    assert scene.keeper.pids == ()
