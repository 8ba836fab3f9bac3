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

from tests.unit.checkpoints.sealed import seal  # noqa: E402

from holdfast_sidecar.bad_input import BadInput  # noqa: E402
from holdfast_sidecar.launcher import launch as launching  # noqa: E402
from holdfast_sidecar.launcher.arguments import parse_arguments  # noqa: E402
from holdfast_sidecar.launcher.entrance import Entrance  # noqa: E402
from holdfast_sidecar.launcher.job_server import JobServer  # noqa: E402
from holdfast_sidecar.settings import CheckpointSettings, RedisSettings  # noqa: E402


def test_signals_are_ignored_before_the_sidecar_is_told_to_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second SIGTERM would otherwise leave the sidecar to its grace, and its node in doubt."""
    for name in [n for n in os.environ if n.startswith(("HOLDFAST_", "PET_"))]:
        monkeypatch.delenv(name)
    (tmp_path / "shm").mkdir()
    (tmp_path / "train.py").touch()
    monkeypatch.setenv("HOLDFAST_SET_PATHS_SHM_DIR", str(tmp_path / "shm"))
    monkeypatch.setenv("HOLDFAST_SET_PATHS_STATE_DIR", str(tmp_path / "state"))
    done: list[str] = []

    @contextlib.contextmanager
    def sidecar(*given: Any, **named: Any) -> Iterator[None]:
        done.append("sidecar starts")
        yield
        done.append("sidecar ends")

    server = JobServer(RedisSettings(url="unix:///nothing"))
    monkeypatch.setattr("holdfast_sidecar.launcher.job_server.start_own", lambda *given: server)
    monkeypatch.setattr(Entrance, "check_shared", lambda self: None)
    monkeypatch.setattr(launching, "sidecar", sidecar)
    monkeypatch.setattr(launching, "run_agent", lambda *given: done.append("agent runs"))
    monkeypatch.setattr(launching, "ignore", lambda names: done.append(f"ignores {names}"))
    arguments = parse_arguments(["--signals-to-handle=SIGUSR2", str(tmp_path / "train.py")])
    with contextlib.ExitStack() as at_exit:
        launching.launch(arguments, at_exit)
    assert done == ["sidecar starts", "agent runs", "ignores SIGUSR2", "sidecar ends"]


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
        assert launching.load_settings(arguments).settings.checkpoint.dir == meant


def test_a_job_whose_sidecar_would_not_serve_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    arguments = parse_arguments(["--set=sidecar.listen=0.0.0.0:9750", "train.py"])
    with pytest.raises(BadInput, match=r"read along: set sidecar\.token_file"):
        launching.load_settings(arguments)


def test_the_same_command_has_the_same_name_where_it_saves() -> None:
    def name(*line: str, place: str, is_alone: bool = True) -> str:
        return launching.name_job(parse_arguments([*line, "train.py"]), is_alone, place)

    assert name(place="/a") == name(place="/a") != name(place="/b")
    assert name(place="/a").startswith("train-")
    assert name(place="") != name(place="")  # two jobs may run here at once
    assert name(place="/a", is_alone=False) == "train"
    assert name("--job=mine", place="/a") == "mine"


def test_what_would_come_as_a_surprise_is_said_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def said(**given: Any) -> str:
        caplog.clear()
        launching.remark_on_checkpoints(CheckpointSettings(**given), "mine")
        return caplog.text

    assert said() == said(dir=str(tmp_path), every_s=5.0) == ""
    assert "nothing will be saved" in said(every_s=5.0)
    assert "nothing will be saved" in said(every_steps=5)
    seal(tmp_path, 10, "x", job="other")
    assert "of job other and none of job mine" in said(dir=str(tmp_path))
