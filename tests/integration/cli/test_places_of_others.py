"""A directory in shared memory that another user made in our name is refused, in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="makes a directory of another user: needs root"
)


@pytest.mark.parametrize(
    "command",
    [
        ["run", "train.py"],
        ["attach", "--job", "llama", "--node", "a"],
        ["sidecar", "--job", "llama", "--node", "a"],
    ],
    ids=lambda command: command[0],
)
def test_commands_refuse_it_and_leave_what_it_leads_to(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "train.py").write_text("")
    precious = tmp_path / "home" / "thesis"
    precious.mkdir(parents=True)
    os.utime(precious, (1.0, 1.0))
    planted = tmp_path / "shm" / f"holdfast-{os.getuid()}"
    (planted / "llama" / "a").mkdir(parents=True)
    (planted / "linked").symlink_to(precious.parent)
    os.chown(planted, 65534, 65534)
    name, *rest = command
    settings = ["--set", f"paths.shm_dir={tmp_path / 'shm'}", "--set", "paths.shm_reserve_bytes=0"]
    program = (sys.executable, "-m", "holdfast_sidecar.cli.main")
    found = subprocess.run(
        [*program, name, *settings, *rest], capture_output=True, text=True, check=False, timeout=60
    )
    assert found.returncode == 2, found.stderr
    assert f"{planted} is not a directory of yours: remove it, or set paths.shm_dir" in found.stderr
    assert precious.exists()
