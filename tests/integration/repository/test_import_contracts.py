"""The import contracts must be able to fail: each gets an import that breaks it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

tomllib = pytest.importorskip("tomllib", reason="reads pyproject.toml; Python 3.11 has tomllib")
pytest.importorskip("importlinter")

ROOT = Path(__file__).parents[3]

PLANTED = {
    "hooks never import the sidecar, nor anything that it needs": (
        "hooks/holdfast/planted.py",
        "import psutil",
    ),
    "the sidecar imports the contract from hooks, the launcher its attachment too": (
        "sidecar/holdfast_sidecar/actions/planted.py",
        "import holdfast.planted",
    ),
    "detectors, decisions, stragglers, live views and what GPU readings mean are pure": (
        "sidecar/holdfast_sidecar/stragglers/planted.py",
        "def answer() -> None:\n    import socket",
    ),
    "probes, actions and coordination share records, and don't know each other": (
        "sidecar/holdfast_sidecar/probes/planted.py",
        "import holdfast_sidecar.actions.planted",
    ),
    "what is told does not know how it is served": (
        "sidecar/holdfast_sidecar/records/planted.py",
        "import holdfast_sidecar.serving",
    ),
    "nothing imports the command line": (
        "sidecar/holdfast_sidecar/metrics/planted.py",
        "import holdfast_sidecar.cli",
    ),
    "nothing on the sidecar's path imports the launcher": (
        "sidecar/holdfast_sidecar/server/planted.py",
        "import holdfast_sidecar.launcher",
    ),
    "in the sidecar's package only the launcher, the writer and a node's test import torch": (
        "sidecar/holdfast_sidecar/checkpoints/planted.py",
        "def answer() -> None:\n    import torch",
    ),
    "only a child of the sidecar asks NVML": (
        "sidecar/holdfast_sidecar/nvml/planted.py",
        "def answer() -> None:\n    import holdfast_sidecar.components.gpu.nvml.device",
    ),
    "nothing on the sidecar's path imports the writer": (
        "sidecar/holdfast_sidecar/peers/planted.py",
        "import holdfast_sidecar.writer",
    ),
    "nothing on the sidecar's path imports a node's test": (
        "sidecar/holdfast_sidecar/gate/planted.py",
        "import holdfast_sidecar.gate.exertion",
    ),
    "nothing on the sidecar's path imports what draws on a terminal": (
        "sidecar/holdfast_sidecar/readings/planted.py",
        "import holdfast_sidecar.top",
    ),
    "Textual is imported where the screen is drawn, and nowhere else": (
        "sidecar/holdfast_sidecar/top/planted.py",
        "def answer() -> None:\n    import textual",
    ),
    "a live view becomes lines by pure functions": (
        "sidecar/holdfast_sidecar/top/drawing/planted.py",
        "import time",
    ),
    "what goes into a Grafana is decided without one, and without a clock": (
        "sidecar/holdfast_sidecar/grafana/planted.py",
        "def answer() -> None:\n    import socket",
    ),
    "only the command line talks to a Grafana": (
        "sidecar/holdfast_sidecar/evidence/planted.py",
        "import holdfast_sidecar.cli.grafana.api",
    ),
}


def lint(tree: Path) -> str:
    paths = f"{tree}/hooks:{tree}/sidecar"
    environment = {**os.environ, "PYTHONPATH": paths, "COLUMNS": "200"}  # no name is wrapped
    answer = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return answer.stdout + answer.stderr


def test_every_import_contract_notices_a_planted_import(tmp_path: Path) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    names = [contract["name"] for contract in settings["tool"]["importlinter"]["contracts"]]
    assert names == list(PLANTED)

    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for source in ("hooks", "sidecar"):
        shutil.copytree(ROOT / source, tmp_path / source)
    for path, code in PLANTED.values():
        (tmp_path / path).write_text(f'"""Planted."""\n\n{code}\n')

    verdicts = lint(tmp_path)

    assert [name for name in names if f"{name} BROKEN" not in verdicts] == []
