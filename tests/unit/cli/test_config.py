import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast_sidecar.cli.main import cli
from holdfast_sidecar.config.loading import known_names


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["config", *arguments])


def test_every_setting_is_printed_with_its_origin() -> None:
    rows = [line.split() for line in run("--set", "checkpoint.keep=4").output.splitlines()]
    assert [row[0] for row in rows] == ["setting", *known_names()]
    assert ["checkpoint.keep", "4", "command", "line"] in rows
    assert ["stall.factor", "3.0", "default"] in rows


def test_only_the_changed_ones_are_printed_when_asked() -> None:
    (name,) = json.loads(run("--changed", "--json", "--set", "checkpoint.keep=4").output)
    assert name == "checkpoint.keep"
    assert run("--changed").output == "every setting has its default\n"


def test_the_password_of_a_url_is_never_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_REDIS", "rediss://me:hunter2@h:6380/1")
    for arguments in ([], ["--json"]):
        output = run(*arguments).output
        assert "rediss://h:6380/1" in output
        assert "hunter2" not in output


def test_a_ladder_in_the_wrong_order_is_refused() -> None:
    result = run("--set", "sidecar.lease_s=0.1")
    assert result.exit_code == 2
    assert "timeouts in the wrong order" in result.output
