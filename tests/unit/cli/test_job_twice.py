"""A job that is named as an argument and with --job."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast_sidecar.cli.main import cli

COMMANDS = (["report"], ["explain", "--slow"])


def run(command: list[str], *arguments: str, state: Path, **environment: str) -> Result:
    given = [*command, *arguments, "--set", f"paths.state_dir={state}"]
    return CliRunner().invoke(cli, given, prog_name="holdfast", env=environment)


@pytest.mark.parametrize("command", COMMANDS)
def test_two_names_are_one_line_and_exit_2(command: list[str], tmp_path: Path) -> None:
    result = run(command, "spb", "--job", "sp", state=tmp_path)
    assert (result.exit_code, result.output) == (
        2,
        "holdfast: JOB or --job: one of them, not 'spb' and 'sp'\n",
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_the_same_name_twice_is_that_job(command: list[str], tmp_path: Path) -> None:
    result = run(command, "sp", "--job", "sp", state=tmp_path)
    assert "no job 'sp' of yours runs here" in result.output


@pytest.mark.parametrize("command", COMMANDS)
def test_what_the_environment_names_gives_way(command: list[str], tmp_path: Path) -> None:
    result = run(command, "spb", state=tmp_path, HOLDFAST_JOB="sp")
    assert "no job 'spb' of yours runs here" in result.output
