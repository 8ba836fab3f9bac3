"""Real launches of `holdfast run` on this machine, each in a directory of its own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.end_to_end.launcher import surroundings

PATIENCE_S = 90.0
"""For a machine on which everything else runs as well; a launch takes 3 s here."""

TELL = """
import json, os, sys
facts = {"env": dict(os.environ), "argv": sys.argv, "name": __name__, "pid": os.getpid()}
attempt = os.environ.get("HOLDFAST_ATTEMPT", "none")
rank = os.environ["RANK"]
with open(os.path.join(os.environ["OUT"], f"{attempt}-{rank}.json"), "w") as f:
    json.dump(facts, f)
"""
"""Beginning of a script: leave word of how this rank was started."""


@dataclass
class Launched:
    """A launch under way, or over."""

    process: subprocess.Popen[str]
    folder: Path
    output: str = ""

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait for the exit code; the output is kept."""
        try:
            self.output += self.process.communicate(timeout=timeout_s)[0]
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.output += self.process.communicate(timeout=20)[0]
            raise AssertionError(f"still running after {timeout_s} s:\n{self.output}") from None
        return self.process.returncode

    def facts(self, attempt: int | str, rank: int) -> dict[str, Any]:
        """What the rank said of itself."""
        found: dict[str, Any] = json.loads(
            (self.folder / "out" / f"{attempt}-{rank}.json").read_text()
        )
        return found

    def environment(self, attempt: int | str, rank: int) -> dict[str, str]:
        """The rank's environment."""
        found: dict[str, str] = self.facts(attempt, rank)["env"]
        return found


@dataclass
class Ground:
    """Where launches happen: scripts, output, state and shared memory of this test alone."""

    folder: Path
    environment: dict[str, str]
    launched: list[Launched] = field(default_factory=list)

    def script(self, name: str, body: str) -> str:
        """Write a script that first tells about itself."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(TELL + body)
        return name

    def start(self, *arguments: str, **environment: str) -> Launched:
        """Start `holdfast run` with these arguments."""
        return self.start_python("holdfast_sidecar.cli.main", "run", *arguments, **environment)

    def start_python(self, module: str, *arguments: str, **environment: str) -> Launched:
        """Start a module of Python; ended with the test at the latest."""
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=self.folder,
            env=self.environment | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        launched = Launched(process, self.folder)
        self.launched.append(launched)
        return launched

    def run(self, *arguments: str, **environment: str) -> Launched:
        """Run to the end."""
        launched = self.start(*arguments, **environment)
        launched.wait()
        return launched

    def left_in_shared_memory(self) -> list[str]:
        """What lies where pages were."""
        return sorted(
            str((Path(where) / name).relative_to(self.folder / "shm"))
            for where, folders, files in os.walk(self.shm)  # which may be swept meanwhile
            for name in (*folders, *files)
        )

    @property
    def shm(self) -> Path:
        """Directory in the place of /dev/shm."""
        return self.folder / "shm"


@pytest.fixture
def ground() -> Iterator[Ground]:
    pytest.importorskip("torch")
    folder = Path(tempfile.mkdtemp(prefix="hf-run-", dir="/tmp"))
    for name in ("out", "shm", "state", "tmp"):
        (folder / name).mkdir()
    own = {"HOLDFAST_SET_SIDECAR_GRACE_S": "3", "TMPDIR": str(folder / "tmp")}
    made = Ground(folder, surroundings(folder) | own)
    yield made
    for launched in made.launched:
        if launched.process.poll() is None:
            launched.process.kill()
            launched.process.communicate()
    shutil.rmtree(folder, ignore_errors=True)
