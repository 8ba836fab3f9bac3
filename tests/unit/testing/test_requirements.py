"""What is missing is told before anything is started, a line for each."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from testing import demo_alerting
from testing.alerting import ALERTMANAGER, PROMETHEUS, find_programs, missing

from holdfast_sidecar.cli.demonstration import screen
from holdfast_sidecar.config.settings import BadInput


def test_what_is_here_is_found_by_any_of_its_names() -> None:
    here = {"prometheus": "/x/prometheus", "alertmanager": "/x/alertmanager"}
    assert find_programs(here.get) == {
        PROMETHEUS: "/x/prometheus",
        ALERTMANAGER: "/x/alertmanager",
    }
    assert missing(find_programs(here.get)) == []


def test_each_missing_program_is_one_line_with_its_package() -> None:
    first, second = missing(find_programs(lambda name: None))
    assert "apt-get install prometheus " in first
    assert "apt-get install prometheus-alertmanager " in second


@pytest.fixture
def performed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Each time that something would have been started."""
    started: list[Any] = []
    monkeypatch.setattr(screen, "find_spec", lambda name: object())
    monkeypatch.setattr(screen, "rehearse", lambda: started.append("rehearsal"))
    return started


def test_without_them_the_command_ends_with_2(
    monkeypatch: pytest.MonkeyPatch, performed: list[Any]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    result = CliRunner().invoke(demo_alerting.alerting, [])
    assert result.exit_code == 2
    assert result.output.count("is not installed") == 2
    assert performed == []


def test_a_directory_that_is_there_already_is_not_written_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, performed: list[Any]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/x/{name}")
    result = CliRunner().invoke(demo_alerting.alerting, [f"--keep={tmp_path}"])
    assert isinstance(result.exception, BadInput)
    assert performed == []
