"""The order in which a launch ends what it started."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from tests.unit.checkpoint.sealed import seal  # noqa: E402

from holdfast_sidecar.config.settings import (  # noqa: E402
    BadInput,
    CheckpointSettings,
    PathSettings,
    RedisSettings,
)
from holdfast_sidecar.launcher import launch  # noqa: E402
from holdfast_sidecar.launcher.arguments import parse_arguments  # noqa: E402
from holdfast_sidecar.launcher.join import Entrance  # noqa: E402
from holdfast_sidecar.launcher.sidecar_process import JobServer  # noqa: E402


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """One to launch, with directories of its own and no settings from outside."""
    for name in [n for n in os.environ if n.startswith(("HOLDFAST_", "PET_"))]:
        monkeypatch.delenv(name)
    (tmp_path / "shm").mkdir()
    (tmp_path / "train.py").touch()
    monkeypatch.setenv("HOLDFAST_SET_PATHS_SHM_DIR", str(tmp_path / "shm"))
    monkeypatch.setenv("HOLDFAST_SET_PATHS_STATE_DIR", str(tmp_path / "state"))
    return str(tmp_path / "train.py")


def test_signals_are_ignored_before_the_sidecar_is_told_to_leave(
    script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second SIGTERM would otherwise leave the sidecar to its grace, and its node in doubt."""
    done: list[str] = []

    @contextlib.contextmanager
    def sidecar(*given: Any, **named: Any) -> Iterator[None]:
        done.append("sidecar starts")
        yield
        done.append("sidecar ends")

    server = JobServer(RedisSettings(url="unix:///nothing"))
    monkeypatch.setattr(
        "holdfast_sidecar.launcher.sidecar_process.start_own", lambda *given: server
    )
    monkeypatch.setattr(Entrance, "check_shared", lambda self: None)
    monkeypatch.setattr(launch, "sidecar", sidecar)
    monkeypatch.setattr(launch, "run_agent", lambda *given: done.append("agent runs"))
    monkeypatch.setattr(launch, "ignore", lambda names: done.append(f"ignores {names}"))
    arguments = parse_arguments(["--signals-to-handle=SIGUSR2", script])
    with contextlib.ExitStack() as at_exit:
        launch.launch(arguments, at_exit)
    assert done == ["sidecar starts", "agent runs", "ignores SIGUSR2", "sidecar ends"]


def test_a_launch_that_fails_trims_what_finished_jobs_left_as_any_other(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trimmed: list[PathSettings] = []
    monkeypatch.setattr("holdfast_sidecar.launcher.finished_jobs.trim_in_time", trimmed.append)

    def fails(*given: object) -> None:
        raise BadInput("no server")

    monkeypatch.setattr("holdfast_sidecar.launcher.sidecar_process.start_own", fails)
    with contextlib.ExitStack() as at_exit, pytest.raises(BadInput, match="no server"):
        launch.launch(parse_arguments([script]), at_exit)
    assert [paths.state_dir for paths in trimmed] == [str(tmp_path / "state")]


def test_a_checkpoint_url_reaches_the_ranks_as_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [n for n in os.environ if n.startswith(("HOLDFAST_", "PET_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    for given, meant in (
        ("s3://bucket/run", "s3://bucket/run"),
        ("run", f"{tmp_path}/run"),
        ("~/run", str(Path("~/run").expanduser())),
    ):
        arguments = parse_arguments([f"--checkpoint-dir={given}", "train.py"])
        assert launch.load_settings(arguments).settings.checkpoint.dir == meant


def test_a_job_whose_sidecar_would_not_serve_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    arguments = parse_arguments(["--set=sidecar.listen=0.0.0.0:9750", "train.py"])
    with pytest.raises(BadInput, match=r"read along: set sidecar\.token_file"):
        launch.load_settings(arguments)


def test_the_same_command_has_the_same_name_where_it_saves() -> None:
    def name(*line: str, place: str) -> str:
        return launch.name_job(parse_arguments([*line, "train.py"]), True, False, place)

    assert name(place="/a") == name(place="/a") != name(place="/b")
    assert name(place="/a").startswith("train-")
    assert name(place="") != name(place="")  # two jobs may run here at once
    assert name("--job=mine", place="/a") == "mine"


def test_on_a_shared_server_no_two_launches_have_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    for known in [n for n in os.environ if n.startswith(("SLURM_", "HOLDFAST_"))]:
        monkeypatch.delenv(known)

    def name(*line: str, place: str = "", is_several: bool = False) -> str:
        arguments = parse_arguments([*line, "train.py"])
        return launch.name_job(arguments, False, is_several, place)

    assert name() != name()
    assert name(place="/a") == name(place="/a") != name(place="/b")
    assert name("--job=mine") == name("--rdzv-id=mine", is_several=True) == "mine"
    with pytest.raises(BadInput, match="give --job NAME on each of them"):
        name(is_several=True)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    assert name(is_several=True) == "train-slurm-7.0"
    assert name(place="/a") == name(place="/a") == "train-slurm-7.0"
    assert name() != name()  # two in the background of one batch script
    monkeypatch.setenv("HOLDFAST_LAUNCH_ID", "0c9d7f3e-8a1b-4c2d-9e3f-112233445566")
    assert name(is_several=True) == "train-0c9d7f3e-8a1b-4c2d-9e3f-112233445566"
    long = launch.name_job(parse_arguments([f"{'x' * 99}.py"]), False, True, "")
    assert len(long) == 63
    assert long.endswith("445566")


def test_what_would_come_as_a_surprise_is_said_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def said(**given: Any) -> str:
        caplog.clear()
        launch.remark_on_checkpoints(CheckpointSettings(**given), "mine")
        return caplog.text

    assert said() == said(dir=str(tmp_path), every_s=5.0) == ""
    assert "nothing will be saved" in said(every_s=5.0)
    assert "nothing will be saved" in said(every_steps=5)
    seal(tmp_path, 10, "x", job="other")
    assert "of job other and none of job mine" in said(dir=str(tmp_path))
