"""What can't work is refused before anything is trained."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast_sidecar.cli import demo
from holdfast_sidecar.cli.demonstration import job, screen
from holdfast_sidecar.config.settings import BadInput


def test_a_launcher_that_starts_is_good_enough() -> None:
    screen.check_launcher([sys.executable, "-c", "print('usage')"])


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import no_such_module_of_ours", "No module named 'no_such_module_of_ours'"),
        ("import sys; sys.exit('holdfast: PyTorch is too old')", "start here: PyTorch is too old"),
        ("import sys; sys.exit(3)", "start here: exit code 3"),
    ],
)
def test_a_launcher_that_does_not_start_is_told_in_its_own_words(code: str, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        screen.check_launcher([sys.executable, "-c", code])


def test_it_is_the_command_of_this_installation_that_is_tried() -> None:
    assert job.launcher_help()[-2:] == ["run", "--help"]
    assert job.launcher_help()[0] == sys.executable


def test_nothing_is_trained_where_the_launcher_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    performed: list[Any] = []
    monkeypatch.setattr(screen, "find_spec", lambda name: object())
    monkeypatch.setattr(demo, "perform", lambda *given: performed.append(given))
    monkeypatch.setattr(screen, "find_binary", lambda: None)
    monkeypatch.setattr(job, "launcher_help", lambda: [sys.executable, "-c", "1/0"])
    result = CliRunner().invoke(demo.demo, [])
    assert isinstance(result.exception, BadInput)
    assert performed == []
