from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast_sidecar.cli.grafana.client import open_client, parse_address
from holdfast_sidecar.config.settings import BadInput

ROOT = Path(__file__).parents[3]

IMPORTED = """
import importlib, pkgutil, sys
import holdfast, holdfast_sidecar
from holdfast_sidecar import cli
from holdfast_sidecar.cli import grafana
for package in (cli, grafana):
    for one in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(one.name)
loaded = [name for name in sys.modules if "grafana_client" in name or name == "niquests"]
sys.exit(str(loaded) if loaded else 0)
"""


def test_importing_holdfast_never_imports_the_grafana_client() -> None:
    """Nor does any of its commands, until one talks to a Grafana."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_client_is_named_in_one_file_only() -> None:
    naming = [
        path.name
        for folder in ("hooks/holdfast", "sidecar/holdfast_sidecar")
        for path in (ROOT / folder).rglob("*.py")
        if "grafana_client" in path.read_text()
    ]
    assert naming == ["client.py"]


def test_a_missing_client_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grafana_client", None)
    with pytest.raises(BadInput, match=r"pip install 'holdfast\[grafana\]'"):
        open_client(parse_address("http://localhost:3000"), "a-token", 1.0)
