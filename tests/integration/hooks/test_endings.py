"""What a rank leaves behind, whichever way it ends."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from holdfast.contract.page import STACKS_SIGNAL, Ending, Phase, Word

PAUSE = 34
"""Its number on x86-64."""

FAIL = """
    import torch

    def deep(secret):
        raise ValueError("planted " + "x" * 5000)

    deep(1)
"""


@pytest.mark.torch
def test_an_exception_is_told_in_the_page_and_in_torchs_error_file(stage) -> None:
    error_file = stage.folder / "error.json"
    env = stage.environment(TORCHELASTIC_ERROR_FILE=str(error_file))
    ended = stage.run(FAIL, env)
    assert ended.code == 1
    assert ended.err.count("Traceback") == 1
    assert "__import__" not in ended.err
    assert "holdfast" not in ended.err
    words = stage.last_words()
    assert words["type"] == "ValueError"
    assert words["message"].startswith("planted xxx")
    assert words["frame"].endswith("in deep")
    assert stage.ending() is Ending.EXCEPTION
    told = json.loads(error_file.read_text())["message"]
    assert told["message"].startswith("ValueError: planted")
    assert "in deep" in told["extraInfo"]["py_callstack"]


@pytest.mark.torch
def test_what_torchs_own_record_wrote_is_not_overwritten(stage) -> None:
    error_file = stage.folder / "error.json"
    ended = stage.run(
        """
        import os
        from torch.distributed.elastic.multiprocessing.errors import record

        @record
        def main():
            raise ValueError("planted")

        try:
            main()
        except ValueError:
            os.utime(os.environ["TORCHELASTIC_ERROR_FILE"], (5, 5))
            raise
        """,
        stage.environment(TORCHELASTIC_ERROR_FILE=str(error_file)),
    )
    assert ended.code == 1
    assert error_file.stat().st_mtime == 5
    assert stage.last_words()["type"] == "ValueError"


CLOSES_WHAT_IT_DID_NOT_OPEN = """
    import ctypes, os, torch

    os.closerange(3, 1024)
    for _ in range(600):
        os.open("mine", os.O_RDWR | os.O_CREAT)
    libc = ctypes.CDLL(None)
    libc.on_exit(libc.pause, None)  # once the interpreter is gone
"""


@pytest.mark.torch
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="has a number for pause")
def test_descriptors_that_a_script_took_over_outlive_ours(stage) -> None:
    """gloo's, for one, are in use by its threads until the process is gone."""
    process = stage.start(CLOSES_WHAT_IT_DID_NOT_OPEN)
    proc = Path(f"/proc/{process.pid}")
    try:
        stage.wait_until(lambda: (proc / "syscall").read_text().startswith(f"{PAUSE} "))
        held = [os.readlink(link) for link in (proc / "fd").iterdir()]
        assert [Path(link).name for link in held].count("mine") == 600
    finally:
        process.kill()
        stage.end(process)


@pytest.mark.torch
@pytest.mark.usefixtures("warm")
def test_ours_are_out_of_the_way_of_who_closes_some_hundreds(stage) -> None:
    """Stacks would be written into whatever has their number then."""
    ended = stage.run(
        """
        import os, torch

        os.closerange(3, 256)
        mine = os.open("mine", os.O_RDWR | os.O_CREAT)
        names = [os.readlink(f"/proc/self/fd/{number}") for number in range(512, 515)]
        print(*sorted(os.path.basename(name) for name in names), mine < 256)
        """
    )
    assert ended.out.count("fatal-local-0.txt stack-local-0.txt True") == 1


@pytest.mark.parametrize(
    ("leave", "code", "ending"),
    [
        ("pass", 0, Ending.FINISHED),
        ("sys.exit()", 0, Ending.FINISHED),
        ("sys.exit(0)", 0, Ending.FINISHED),
        ("sys.exit(3)", 3, Ending.RUNNING),
        ("sys.exit('a message')", 1, Ending.RUNNING),
        ("os._exit(0)", 0, Ending.RUNNING),
        ("os.kill(os.getpid(), 9)", -9, Ending.RUNNING),
        ("raise KeyboardInterrupt", -2, Ending.EXCEPTION),
    ],
)
def test_only_a_clean_end_counts_as_finished(stage, leave: str, code: int, ending: Ending) -> None:
    env = stage.environment(PYTHONPATH=stage.stub_torch())
    ended = stage.run(f"import os, sys, torch\n{leave}\n", env)
    assert (ended.code, stage.ending()) == (code, ending)
    assert (stage.word(Word.PHASE) == Phase.FINISHED) is (ending is Ending.FINISHED)


def test_the_scripts_own_exception_hook_still_runs_and_so_does_ours(stage) -> None:
    ended = stage.run(
        """
        import sys
        sys.excepthook = lambda kind, error, frames: print("own hook:", error)
        import torch
        raise ValueError("planted")
        """,
        stage.environment(PYTHONPATH=stage.stub_torch()),
    )
    assert ended.out == "own hook: planted\n"
    assert stage.last_words()["message"] == "planted"


def test_an_exception_in_a_thread_is_told_but_is_no_end(stage) -> None:
    ended = stage.run(
        """
        import threading, torch
        def fail():
            raise ValueError("planted")
        thread = threading.Thread(target=fail, name="uploader")
        thread.start()
        thread.join()
        """,
        stage.environment(PYTHONPATH=stage.stub_torch()),
    )
    assert ended.code == 0
    assert "ValueError: planted" in ended.err
    assert stage.last_words()["thread"] == "uploader"
    assert stage.ending() is Ending.FINISHED


STUCK = """
    import signal, sys, threading, time
    {before}
    import torch
    def waits_for_ever():
        print("ready", flush=True)
        while True:
            time.sleep(60)
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    waits_for_ever()
"""


def test_a_stuck_rank_writes_its_stacks_when_asked_and_lives_on(stage) -> None:
    env = stage.environment(PYTHONPATH=stage.stub_torch())
    process = stage.start(STUCK.format(before=""), env)
    assert process.stdout.readline() == "ready\n"
    stacks = stage.evidence / "stack-local-0.txt"
    for look in (1, 2):
        os.kill(process.pid, STACKS_SIGNAL)
        stage.wait_until(lambda look=look: stacks.read_text().count("waits_for_ever") == look)
    assert "Thread 0x" in stacks.read_text()
    assert process.poll() is None
    assert stacks.stat().st_mode & 0o777 == 0o600


def test_a_script_that_uses_the_signal_itself_keeps_it(stage) -> None:
    own = f'signal.signal({STACKS_SIGNAL}, lambda *_: print("own", flush=True))'
    env = stage.environment(PYTHONPATH=stage.stub_torch())
    process = stage.start(STUCK.format(before=own), env)
    assert process.stdout.readline() == "ready\n"
    os.kill(process.pid, STACKS_SIGNAL)
    assert process.stdout.readline() == "own\n"
    assert not (stage.evidence / "stack-local-0.txt").exists()


def test_a_script_that_listens_to_its_scheduler_after_us_is_not_asked(stage) -> None:
    """A handler for SIGUSR1 often saves, requeues the job and leaves: it must not run for us."""
    own = 'import torch; signal.signal(signal.SIGUSR1, lambda *_: print("requeue", flush=True))'
    env = stage.environment(PYTHONPATH=stage.stub_torch())
    process = stage.start(STUCK.format(before=own), env)
    assert process.stdout.readline() == "ready\n"
    stacks = stage.evidence / "stack-local-0.txt"
    os.kill(process.pid, STACKS_SIGNAL)
    stage.wait_until(lambda: stacks.read_text().count("waits_for_ever") == 1)
    os.kill(process.pid, signal.SIGUSR1)
    assert process.stdout.readline() == "requeue\n"


def test_a_fatal_signal_leaves_the_stacks(stage) -> None:
    ended = stage.run(
        """
        import ctypes, torch
        def reads_nowhere():
            ctypes.string_at(0)
        reads_nowhere()
        """,
        stage.environment(PYTHONPATH=stage.stub_torch()),
    )
    assert ended.code == -signal.SIGSEGV
    assert "reads_nowhere" in (stage.evidence / "fatal-local-0.txt").read_text()
