"""How a launch ended, told by one line and an exit code."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch.distributed.elastic.rendezvous import RendezvousTimeoutError  # noqa: E402

from holdfast_sidecar.config.settings import BadInput  # noqa: E402
from holdfast_sidecar.launcher import launch as ending_line  # noqa: E402
from holdfast_sidecar.launcher.arguments import parse_arguments  # noqa: E402
from holdfast_sidecar.launcher.rendezvous import NotFormedAgain  # noqa: E402
from holdfast_sidecar.launcher.shutdown import Preempted  # noqa: E402
from holdfast_sidecar.policy.budget import EXIT_REQUEUE  # noqa: E402


def launching(monkeypatch: pytest.MonkeyPatch, error: Exception) -> int:
    def launch(*given: Any) -> None:
        raise error

    monkeypatch.setattr(ending_line, "launch", launch)
    monkeypatch.setattr(ending_line, "handle", lambda names: None)
    return ending_line.exit_code_of(parse_arguments(["train.py"]))


def test_nodes_that_do_not_come_to_the_first_attempt_are_bad_input(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(BadInput, match="1 of 2 nodes"):
        launching(monkeypatch, RendezvousTimeoutError("1 of 2 nodes"))


def test_nodes_that_do_not_come_to_a_later_attempt_are_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launching(monkeypatch, NotFormedAgain("1 of 2 nodes")) == 1
    assert capsys.readouterr().err == "holdfast: 1 of 2 nodes\n"


def test_a_node_that_was_asked_to_go_may_be_started_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launching(monkeypatch, Preempted("received SIGTERM")) == EXIT_REQUEUE == 75
    assert capsys.readouterr().err == "holdfast: received SIGTERM\n"


ENDS = """
import sys
from holdfast_sidecar.launcher import __main__, launch as ending_line
from holdfast_sidecar.launcher.shutdown import Preempted
from holdfast_sidecar.config.settings import BadInput
def launch(*given):
    raise {error}
ending_line.launch, ending_line.handle = launch, lambda names: None
sys.exit(__main__.main(["train.py"]))
"""


@pytest.mark.parametrize("is_read", [True, False])
@pytest.mark.parametrize(("error", "code"), [("Preempted('told')", 75), ("BadInput('told')", 2)])
def test_the_exit_code_is_the_same_where_nobody_reads_the_line(
    error: str, code: int, is_read: bool
) -> None:
    """`holdfast run … 2>&1 | tee log`, and the scheduler's SIGTERM ended tee first."""
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as told:
        command = [sys.executable, "-c", ENDS.format(error=error)]
        process = subprocess.Popen(command, stderr=writer)
        os.close(writer)
        if is_read:
            assert told.read().endswith(b"holdfast: told\n")
    assert process.wait(60) == code
