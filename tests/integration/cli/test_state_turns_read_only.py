"""A state directory that turns read-only while the job runs: the job ends as it would have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.end_to_end.launcher import Launcher, await_that, surroundings

pytestmark = [
    pytest.mark.torch,
    pytest.mark.root,
    pytest.mark.skipif(
        os.geteuid() != 0 and not os.environ.get("CI"), reason="mounting needs root"
    ),
]

SCRIPT = """
import pathlib, sys, time
pathlib.Path("begun").touch()
while not pathlib.Path("may-end").exists():
    time.sleep(0.1)
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (3, 1)])
def test_the_exit_code_is_that_of_the_job(code: int, expected: int, short_path: Path) -> None:
    (short_path / "shm").mkdir()
    (short_path / "script.py").write_text(SCRIPT)
    state = short_path / "state"
    command = [sys.executable, "-m", "holdfast_sidecar.cli.main", "run", "--max-restarts=0"]
    launcher = Launcher.start(
        "a",
        [*command, "script.py", str(code)],
        short_path,
        {**surroundings(short_path), "PET_NO_STANDBY": "0"},
    )
    try:
        await_that((short_path / "begun").exists, "the script runs", lambda: launcher.output)
        subprocess.run(["mount", "--bind", str(state), str(state)], check=True)
        try:
            subprocess.run(["mount", "-o", "remount,ro,bind", str(state)], check=True)
            (short_path / "may-end").touch()
            assert launcher.wait() == expected, launcher.output
        finally:
            subprocess.run(["umount", "--lazy", str(state)], check=True)
    finally:
        for process in launcher.processes():
            process.kill()
    assert "Traceback" not in launcher.output
