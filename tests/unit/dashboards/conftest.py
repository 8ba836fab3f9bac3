from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests import grafana_server
from tests.grafana_server import TOKEN, FakeGrafana

from holdfast_sidecar.cli.main import cli


@pytest.fixture
def grafana() -> Iterator[FakeGrafana]:
    """A Grafana with a Prometheus and nothing else; nothing unfit may be asked of it."""
    with grafana_server.running(FakeGrafana()) as running:
        yield running
        assert running.broken == []


@pytest.fixture
def holdfast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """`holdfast dashboards …` in an empty folder, with a token in the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOLDFAST_GRAFANA_TOKEN", TOKEN)
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(cli, ["dashboards", *arguments], prog_name="holdfast")

    return run
