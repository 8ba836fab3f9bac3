from __future__ import annotations

import multiprocessing
import os
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from holdfast.rank import attachment  # noqa: E402
from holdfast_sidecar.launcher import rank_process  # noqa: E402


@pytest.mark.parametrize("is_alive", [True, False])
def test_a_rank_whose_launcher_died_while_it_started_runs_nothing(
    monkeypatch: pytest.MonkeyPatch, is_alive: bool
) -> None:
    def leave(code: int) -> None:
        raise SystemExit(code)

    ran: list[str] = []
    launcher = SimpleNamespace(is_alive=lambda: is_alive)
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: launcher)
    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(rank_process, "die_with", lambda parent_pid: None)
    monkeypatch.setattr(attachment, "arm", lambda: None)
    monkeypatch.setattr(rank_process, "run_script_path", lambda script: ran.append(script))
    if is_alive:
        rank_process.run_path("train.py")
    else:
        with pytest.raises(SystemExit, match="1"):
            rank_process.run_path("train.py")
    assert ran == ["train.py"] * is_alive
