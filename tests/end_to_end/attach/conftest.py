"""A job that srun or mpirun starts, and watches attached to it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.end_to_end.launcher import Launcher, await_that, surroundings

TRAINING = Path(__file__).with_name("training.py")

HOLDFAST = (sys.executable, "-m", "holdfast_sidecar.cli.main")

BRISK = ("--set=sidecar.tick_s=0.1", "--set=sidecar.heartbeat_s=0.1", "--set=sidecar.grace_s=2.5")


@dataclass
class Ground:
    """Where the job's files are, what was started, and what may be done to its ranks."""

    folder: Path
    started: list[Launcher] = field(default_factory=list)
    more: dict[str, str] = field(default_factory=dict)
    """Added to every environment."""

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def environment(self) -> dict[str, str]:
        return surroundings(self.folder) | {"GLOO_SOCKET_IFNAME": "lo"} | self.more

    def exports(self, job: str) -> str:
        """What `holdfast attach --environment` prints."""
        return self.holdfast("attach", "--environment", "--job", job)

    def holdfast(self, *arguments: str) -> str:
        done = subprocess.run(
            [*HOLDFAST, *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode in (0, 1), (arguments, done.stdout, done.stderr)
        return done.stdout

    def explain(self, job: str) -> dict[str, Any]:
        """The story of the job's newest incident."""
        return json.loads(self.holdfast("explain", "--job", job, "--json")) or {}

    def start(self, name: str, *command: str) -> Launcher:
        launcher = Launcher.start(name, command, self.folder, self.environment)
        self.started.append(launcher)
        return launcher

    def attach(self, job: str, *options: str) -> Launcher:
        return self.start(job, *HOLDFAST, "attach", f"--job={job}", *BRISK, *options)

    def await_ranks(self, count: int) -> dict[int, int]:
        """rank -> pid, once so many train."""

        def pids() -> dict[int, int]:
            found = {path: path.read_text() for path in self.out.glob("rank-*.pid")}
            return {int(path.stem[5:]): int(text) for path, text in found.items() if text}

        self.await_that(lambda: len(pids()) == count, f"{count} ranks train")
        return pids()

    def await_that(self, is_so: Callable[[], object], what: str) -> None:
        await_that(lambda: bool(is_so()), what, self.story)

    def story(self) -> str:
        logs = [*self.folder.glob("*.log"), *self.out.glob("*.log")]
        return "\n".join(f"-- {path.name}:\n{path.read_text()[-4000:]}" for path in logs)

    def end(self) -> None:
        left = [process for one in self.started for process in one.processes()]
        # Ranks whose mpirun was killed are nobody's children.
        left += [p for p in psutil.process_iter() if self._is_rank(p)]
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        psutil.wait_procs(left, timeout=10)

    def _is_rank(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get("OUT") == str(self.out)
        except psutil.Error:
            return False


@pytest.fixture
def ground() -> Iterator[Ground]:
    # Short: a server's socket lies below it.
    made = Ground(Path(tempfile.mkdtemp(prefix="hf-attach-", dir="/tmp")))
    made.out.mkdir()
    (made.folder / "shm").mkdir()
    try:
        yield made
    finally:
        made.end()
        shutil.rmtree(made.folder, ignore_errors=True)


def kept_of(story: dict[str, Any]) -> set[str]:
    """Names of the evidence on this machine."""
    return {os.path.basename(path) for path in story["files"]}
