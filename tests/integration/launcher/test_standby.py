"""A rank in a warm interpreter can't tell that it was not started cold."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from holdfast.contract.identity import read_status  # noqa: E402
from holdfast_sidecar.launcher.rank_process import Command, RankProcess, start_cold  # noqa: E402
from holdfast_sidecar.launcher.standby import Standby  # noqa: E402

PROBE = """
import json, multiprocessing, os, pickle, sys, threading
class Mine:
    pass
def same(x):
    return x
def tell():
    me = sys.modules["__main__"]
    facts = {
        "argv": sys.argv, "orig_argv": sys.orig_argv[1:], "path": sys.path, "name": __name__,
        "file": __file__, "globals": sorted(k for k in globals() if k != "facts"),
        "spec": getattr(__spec__, "name", None), "loader": type(__loader__).__name__,
        "package": __package__,
        "flags": repr(sys.flags), "cwd": os.getcwd(), "rank": os.environ.get("RANK"),
        "session": os.getsid(0) == os.getpid(), "group": os.getpgrp() == os.getpid(),
        "environ": sorted(os.environ), "priority": os.getpriority(os.PRIO_PROCESS, 0),
        "main": me.__dict__ is globals(), "is_main": threading.current_thread().name,
        "pickled": type(pickle.loads(pickle.dumps(Mine()))) is Mine,
        "argv_tty": sys.stdout.isatty(), "line_buffering": sys.stdout.line_buffering,
        "fds": len(os.listdir("/proc/self/fd")),
    }
    print(json.dumps(facts))
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(same, [Mine()])[0].__class__ is Mine
    tell()
"""


@pytest.fixture
def standby() -> Iterator[Standby]:
    made = Standby()
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "probe.py").write_text(PROBE)
    (tmp_path / "probe.py").write_text(PROBE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(arguments: list[str], rank: int, out: Path, **changes: str) -> Command:
    environment = {**os.environ, "RANK": str(rank), **changes}
    stream = out.open("w")
    return Command([sys.executable, "-u", *arguments], environment, stream, stream, rank)


def output(process: RankProcess, out: Path) -> str:
    process.wait(60)
    return out.read_text()


def await_ready(standby: Standby) -> None:
    """Wait until every interpreter has said that it is ready, or has ended."""
    for warm in standby._warm:
        warm.channel.settimeout(60)
        warm.channel.recv(1, socket.MSG_PEEK)
        warm.channel.settimeout(None)


def cold_and_warm(standby: Standby, folder: Path, arguments: list[str]) -> tuple[str, str]:
    """What the command prints as a first start, and then from a warm interpreter."""
    first = output(standby.start(command(arguments, 0, folder / "cold")), folder / "cold")
    standby.warm_up()
    assert standby.waiting == 1
    await_ready(standby)
    second = output(standby.start(command(arguments, 1, folder / "warm")), folder / "warm")
    assert standby.waiting == 0
    return first, second


@pytest.mark.parametrize(
    "arguments", [["probe.py", "a", "--b"], ["-m", "package.probe", "a", "--b"]]
)
def test_a_warm_start_looks_like_a_cold_one(
    standby: Standby, folder: Path, arguments: list[str]
) -> None:
    cold, warm = (json.loads(text) for text in cold_and_warm(standby, folder, arguments))
    assert (cold.pop("rank"), warm.pop("rank")) == ("0", "1")
    assert warm == cold


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a capability to lose")
@pytest.mark.parametrize(
    "container",
    [["setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice"], ["unshare", "-Ur"]],
    ids=["without the capability", "with one of its own namespace"],
)
def test_nor_where_root_may_not_raise_a_priority_as_in_a_container(container: list[str]) -> None:
    if subprocess.run([*container, "true"], capture_output=True, check=False).returncode:
        pytest.skip(f"no {container[0]} here")
    again = f"{__file__}::{test_a_warm_start_looks_like_a_cold_one.__name__}"
    inner = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", again]
    told = subprocess.run(
        [*container, *inner], capture_output=True, text=True, timeout=120, check=False
    )
    assert told.returncode == 0, told.stdout[-3000:] + told.stderr


def test_an_uncaught_exception_is_shown_as_ever(standby: Standby, folder: Path) -> None:
    (folder / "bad.py").write_text("def f():\n    raise ValueError('boom')\nf()\n")
    cold, warm = cold_and_warm(standby, folder, ["bad.py"])
    assert "ValueError: boom" in cold
    assert warm == cold


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("pass", 0),
        ("raise SystemExit(7)", 7),
        ("1/0", 1),
        ("import os; os.kill(os.getpid(), 9)", -9),
    ],
)
def test_exit_codes_are_the_same(standby: Standby, folder: Path, body: str, code: int) -> None:
    (folder / "end.py").write_text(body)
    for attempt in range(2):
        process = standby.start(command(["end.py"], 0, folder / f"out{attempt}"))
        assert process.wait(60) == code
        standby.warm_up()
        await_ready(standby)


def test_a_machine_that_has_no_descriptor_left_starts_none_and_goes_on(
    standby: Standby, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "end.py").write_text("pass\n")
    standby.start(command(["end.py"], 0, folder / "out")).wait(60)
    caplog.set_level("INFO", "holdfast_sidecar")
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, usual[1]))
    try:
        standby.warm_up()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)
    assert standby.waiting == 0
    assert "would start cold" in caplog.text


def test_torch_is_there_already(standby: Standby, folder: Path) -> None:
    (folder / "look.py").write_text("import sys; print('torch' in sys.modules)")
    cold, warm = cold_and_warm(standby, folder, ["look.py"])
    assert (cold.strip(), warm.strip()) == ("False", "True")


@pytest.mark.parametrize("changed", ["OMP_NUM_THREADS", "PYTHONPATH", "ANYTHING"])
def test_a_variable_that_may_be_read_early_means_a_cold_start(
    standby: Standby, folder: Path, changed: str
) -> None:
    (folder / "look.py").write_text("import sys; print('torch' in sys.modules)")
    standby.start(command(["look.py"], 0, folder / "cold")).wait(60)
    standby.warm_up()
    await_ready(standby)
    second = standby.start(command(["look.py"], 0, folder / "again", **{changed: "3"}))
    assert output(second, folder / "again").strip() == "False"


def test_an_interpreter_that_died_waiting_is_replaced_by_a_cold_start(
    standby: Standby, folder: Path
) -> None:
    (folder / "look.py").write_text("print('ran')")
    standby.start(command(["look.py"], 0, folder / "cold")).wait(60)
    standby.warm_up()
    waiting = standby._warm[0].process
    waiting.kill()
    waiting.wait()
    assert output(standby.start(command(["look.py"], 0, folder / "x")), folder / "x") == "ran\n"


def test_an_interpreter_that_is_still_importing_is_not_waited_for(
    standby: Standby, folder: Path
) -> None:
    (folder / "look.py").write_text("import sys; print('torch' in sys.modules)")
    standby.start(command(["look.py"], 0, folder / "cold")).wait(60)
    (folder / "slow.py").write_text("import time; time.sleep(600)")
    standby.warm_up(("slow",))
    second = standby.start(command(["look.py"], 0, folder / "again"))
    assert output(second, folder / "again").strip() == "False"


def test_an_interpreter_that_cannot_import_is_told_of_and_its_rank_starts_cold(
    standby: Standby, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    evidence = folder / "evidence"
    (folder / "look.py").write_text("print('ran')")
    first = command(["look.py"], 0, folder / "cold", HOLDFAST_EVIDENCE_DIR=str(evidence))
    standby.start(first).wait(60)
    standby.warm_up(("no_such_module",))
    await_ready(standby)
    standby._warm[0].process.wait(60)
    assert output(standby.start(command(["look.py"], 0, folder / "x")), folder / "x") == "ran\n"
    (kept,) = evidence.iterdir()
    assert "No module named 'no_such_module'" in kept.read_text()
    assert f"exited with code 1: see {kept}" in caplog.text


def test_nothing_is_kept_of_an_interpreter_that_was_used_or_not_needed(
    standby: Standby, folder: Path
) -> None:
    evidence = folder / "evidence"
    (folder / "look.py").write_text("print('ran')")
    for attempt in range(2):
        out = folder / f"out{attempt}"
        rank = command(["look.py"], 0, out, HOLDFAST_EVIDENCE_DIR=str(evidence))
        assert output(standby.start(rank), out) == "ran\n"
        standby.warm_up()
        await_ready(standby)
    standby.close()
    assert list(evidence.iterdir()) == []


def test_what_is_no_python_script_is_started_cold(standby: Standby, folder: Path) -> None:
    with (folder / "out").open("w") as out:
        standby.start(Command(["/bin/echo", "hi"], os.environ, out, out, 0)).wait(60)
    standby.warm_up()
    assert standby.waiting == 0


@pytest.mark.parametrize("warm", [False, True])
def test_ranks_die_with_the_launcher_however_it_dies(folder: Path, warm: bool) -> None:
    (folder / "sleep.py").write_text("import os, time; os.write(1, b'up\\n'); time.sleep(600)")
    program = f"""
import os, socket, sys, time
from pathlib import Path
from holdfast_sidecar.launcher.rank_process import Command, start_cold
from holdfast_sidecar.launcher.standby import Standby
standby = Standby()
def start(script):
    return standby.start(Command([sys.executable, "-u", script], os.environ, None, None, 0))
if {warm}:
    Path("nothing.py").touch()
    start("nothing.py").wait()
    standby._commands[0] = Command([sys.executable, "-u", "sleep.py"], os.environ, None, None, 0)
    standby.warm_up()
    standby._warm[0].channel.recv(1, socket.MSG_PEEK)
def tell(*words):  # at once, as the rank writes there too
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
tell(start("sleep.py").pid, standby.waiting)
standby.warm_up()
tell(standby._warm[0].process.pid)
time.sleep(600)
"""
    launcher = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert launcher.stdout is not None
    lines = [launcher.stdout.readline().strip() for _ in range(3)]
    pids = [int(line.split()[0]) for line in lines if line != "up"]
    assert len(pids) == 2
    assert all(read_status(pid) is not None for pid in pids)
    handles = [os.pidfd_open(pid) for pid in pids]
    launcher.send_signal(signal.SIGKILL)
    launcher.wait()
    import select

    for handle in handles:
        assert select.select([handle], [], [], 10)[0]
        os.close(handle)
    launcher.stdout.close()


def test_a_cold_start_is_torchs_own_in_all_but_its_death(folder: Path) -> None:
    process = start_cold(command(["probe.py"], 0, folder / "out"))
    facts = json.loads(output(process, folder / "out"))
    assert facts["session"]
    assert facts["group"]
