"""Bad input is one clear line and exit code 2, with nothing started."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from holdfast_sidecar.launcher.__main__ import judge_torch, main  # noqa: E402
from holdfast_sidecar.launcher.arguments import why_unhooked  # noqa: E402


@pytest.fixture(autouse=True)
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [n for n in os.environ if n.startswith(("HOLDFAST_", "PET_"))]:
        monkeypatch.delenv(name)
    (tmp_path / "shm").mkdir()
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_SET_PATHS_SHM_DIR", str(tmp_path / "shm"))
    monkeypatch.setenv("HOLDFAST_SET_PATHS_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr("holdfast_sidecar.launcher.launch.handle", lambda names: None)
    return tmp_path


def test_a_python_without_a_gil_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    assert main(["train.py"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "free-threaded" in line


def test_a_switch_for_no_hook_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOLDFAST_HOOKS", "-backwards")
    assert main(["train.py"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "'-backwards'" in line


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ([], "no script to run was given (see `holdfast run --help`)"),
        (["--nproc-per-node=2"], "no script to run was given"),
        (["--nonsense", "train.py"], "unrecognized arguments: --nonsense (see `holdfast run"),
        (["--spares=many", "train.py"], "argument --spares: invalid int value: 'many' (see"),
        (["nothere.py"], "there is no script nothere.py"),
        (["/"], "/ is a directory without a __main__.py"),
        (["-m", "not_a_module.at_all"], "there is no module not_a_module.at_all"),
        (["--no-python", "not-a-program"], "there is no program not-a-program"),
        (["--nnodes=2", "train.py"], "more than one node needs a common Redis: give --redis URL"),
        (["--nnodes=1:2", "train.py"], "more than one node needs a common Redis"),
        (["--spares=1", "train.py"], "more than one node needs a common Redis"),
        (["--nnodes=two", "train.py"], "--nnodes two: write N or MIN:MAX"),
        (["--nnodes=0", "train.py"], "needs 0 < MIN <= MAX"),
        (["--nproc-per-node=many", "train.py"], "--nproc-per-node many: Unsupported"),
        (["--nproc-per-node=0", "train.py"], "--nproc-per-node 0: a node has at least 1 rank"),
        (["--nproc-per-node=-2", "train.py"], "--nproc-per-node -2: a node has at least 1 rank"),
        (["--nproc-per-node=xpu", "train.py"], "xpu: Xpu is not available; give the number of"),
        (["--monitor-interval=0", "train.py"], "--monitor-interval 0: needs more than 0 seconds"),
        (["--monitor-interval=nan", "train.py"], "--monitor-interval nan: needs more than 0"),
        (["--redirects=9", "train.py"], "--redirects 9: write 0 (nothing), 1 (stdout)"),
        (["--tee=9", "train.py"], "--tee 9: write 0 (nothing), 1 (stdout)"),
        (["--log-dir=/proc/none", "train.py"], "--log-dir /proc/none: No such file or directory"),
        (["--redis=unix:///nothing/there", "train.py"], "Redis cannot be reached"),
        (["--redis=redis://:secret@127.0.0.1:1", "train.py"], "password in the Redis URL"),
        (["--redis=http://x", "train.py"], "not a Redis URL"),
        (["--set", "policy.bugdet=1", "train.py"], "unknown setting policy.bugdet"),
        (["--policy=none.toml", "train.py"], "there is no settings file none.toml"),
        (["--checkpoint-dir=/proc/none", "train.py"], "can't write to the checkpoint path"),
        (["--checkpoint-every=xsteps", "train.py"], "write it as 100steps"),
        (["--rdzv-conf=last_call_timeout=inf", "train.py"], "last_call_timeout 'inf': a duration"),
        (["--rdzv-conf=join_timeout=nan", "train.py"], "--rdzv-conf: join_timeout 'nan': a"),
        (["--job=a/b", "train.py"], "--job a/b: use letters, digits"),
        (["--job=" + 64 * "x", "train.py"], "xx: use at most 63 characters, this is 64"),
        (["--job=-x", "train.py"], "--job -x: begin it with a letter or digit"),
        (['--node=n o"de', "train.py"], '--node n o"de: use letters, digits and . _ ~ - only'),
        (["--node=" + 64 * "x", "train.py"], "xx: use at most 63 characters, this is 64"),
        (["--set", "paths.shm_dir=/nothing", "train.py"], "/nothing is no directory"),
        (["--set", "paths.shm_reserve_bytes=100000000000000", "train.py"], "enlarge it"),
    ],
)
def test_bad_input_is_one_line(
    line: list[str], said: str, capfd: pytest.CaptureFixture[str], ground: Path
) -> None:
    assert main(line) == 2
    lines = capfd.readouterr().err.strip().splitlines()
    assert not any(line.startswith("usage") for line in lines)
    last = lines[-1]
    assert last.startswith("holdfast: ")
    assert said in last
    assert "secret" not in last
    assert list((ground / "shm").iterdir()) == []


def test_signals_that_cannot_be_handled_are_refused(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.undo()
    assert main(["--signals-to-handle=SIGWHAT", "x.py"]) == 2
    assert "'SIGWHAT' is no signal to be handled" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("version", "is_refused"),
    [
        ("2.9.1", True),
        ("1.13.0+cu117", True),
        ("2.10.0", False),
        ("2.13.0+cpu", False),
        ("3.0", False),
    ],
)
def test_only_a_torch_that_is_too_old_is_refused(version: str, is_refused: bool) -> None:
    assert (judge_torch(version) is not None) is is_refused


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["/usr/bin/python3", "-u", "train.py", "-I"], ""),
        (["python3", "-u", "-m", "train"], ""),
        (["./train", "-E"], ""),
        (["/usr/bin/python3.12", "-uI", "train.py"], "python3.12 -I does not look at PYTHONPATH"),
        (["python", "-u", "-S", "train.py"], "python -S does not"),
        (["/x/opentelemetry-instrument", "python", "train.py"], "opentelemetry-instrument puts"),
    ],
)
def test_commands_under_which_no_hook_is_found_are_known(command: list[str], why: str) -> None:
    told = why_unhooked(command)
    assert told.startswith(why)
    assert bool(told) is bool(why)
