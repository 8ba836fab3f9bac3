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
    "each room imports only rooms below it": (
        "sidecar/holdfast_sidecar/records/planted.py",
        "import holdfast_sidecar.export",
    ),
    "hooks never import the sidecar, nor anything that it needs": (
        "hooks/holdfast/planted.py",
        "import psutil",
    ),
    "the contract between hooks and sidecar imports nothing else of the hooks": (
        "hooks/holdfast/contract/planted.py",
        "import holdfast.guard",
    ),
    "the sidecar imports the contract from hooks, and little more": (
        "sidecar/holdfast_sidecar/ranks/planted.py",
        "import holdfast.recording.recorder",
    ),
    "policy, time accounts and the judging of slow ranks are pure": (
        "sidecar/holdfast_sidecar/policy/planted.py",
        "def answer() -> None:\n    import socket",
    ),
    "checks and live views do no I/O themselves, though what they are given is read beside it": (
        "sidecar/holdfast_sidecar/export/live/panels.py",
        "def answer() -> None:\n    import socket",
    ),
    "nothing on the sidecar's path imports what draws on a terminal": (
        "sidecar/holdfast_sidecar/cli/planted.py",
        "import holdfast_sidecar.cli.tui",
    ),
    "what is exported does not know how it is served": (
        "sidecar/holdfast_sidecar/export/catalogue.py",
        "import holdfast_sidecar.export.routes",
    ),
    "in the sidecar's package only the launcher, the writer and a node's test import torch": (
        "sidecar/holdfast_sidecar/checkpoint/planted.py",
        "def answer() -> None:\n    import torch",
    ),
    "only a child of the sidecar asks NVML": (
        "sidecar/holdfast_sidecar/components/gpu/nvml/planted.py",
        "def answer() -> None:\n    import holdfast_sidecar.components.gpu.nvml.device",
    ),
    "nobody imports what runs as a process of its own": (
        "sidecar/holdfast_sidecar/controller/planted.py",
        "import holdfast_sidecar.checkpoint.writer.service",
    ),
    "Textual is imported where the screen is drawn, and nowhere else": (
        "sidecar/holdfast_sidecar/cli/grafana/planted.py",
        "def answer() -> None:\n    import textual",
    ),
    "a live view becomes lines by pure functions": (
        "sidecar/holdfast_sidecar/cli/tui/text.py",
        "import time",
    ),
    "what goes into a Grafana is decided without one, and without a clock": (
        "sidecar/holdfast_sidecar/cli/grafana/push.py",
        "def answer() -> None:\n    import socket",
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
        there = tmp_path / path
        before = there.read_text() if there.exists() else '"""Planted."""\n'
        there.write_text(f"{before}\n{code}\n")

    verdicts = lint(tmp_path)

    assert [name for name in names if f"{name} BROKEN" not in verdicts] == []


def test_few_imports_are_ignored_and_each_is_named_whole() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    ignored = [one for contract in contracts for one in contract.get("ignore_imports", [])]
    assert len(ignored) <= 12
    assert [one for one in ignored if "*" in one] == []
