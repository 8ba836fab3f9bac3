"""A real launcher with its output in a file, and files of its own; and waiting for what comes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from typing import Self

PATIENCE_S = 60.0
"""For a machine on which everything else runs as well; each wait takes seconds at most here."""


@dataclass
class Launcher:
    """A launcher under way, or over."""

    node: str
    process: subprocess.Popen[str]
    log: Path

    @classmethod
    def start(
        cls, node: str, command: Sequence[str], folder: Path, environment: dict[str, str]
    ) -> Self:
        """Start one in this folder, in a session of its own."""
        log = folder / f"{node}-{time.monotonic_ns()}.log"
        with log.open("w") as file:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdout=file,
                stderr=file,
                text=True,
                start_new_session=True,
            )
        return cls(node, process, log)

    @property
    def output(self) -> str:
        return self.log.read_text()

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Exit code; the test fails when it does not end."""
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"node {self.node} never ended:\n{self.output}") from None

    def processes(self) -> list[psutil.Process]:
        """All processes of this launch, itself included, as a scheduler signals them."""
        try:
            launcher = psutil.Process(self.process.pid)
            return [launcher, *launcher.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def signal_all(self, number: signal.Signals = signal.SIGTERM) -> None:
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)


def surroundings(folder: Path) -> dict[str, str]:
    """What launchers are given: all their files in this folder, and no Holdfast from outside.

    No warm interpreters: each costs two seconds of CPU, and most tests never use one.
    """
    outside = ("HOLDFAST_", "PET_", "SLURM_")
    return {name: value for name, value in os.environ.items() if not name.startswith(outside)} | {
        "OUT": str(folder / "out"),
        "HOLDFAST_SET_PATHS_SHM_DIR": str(folder / "shm"),
        "HOLDFAST_SET_PATHS_STATE_DIR": str(folder / "state"),
        "OMP_NUM_THREADS": "1",
        "PET_NO_STANDBY": "1",
    }


def await_that(is_so: Callable[[], bool], what: str, story: Callable[[], str]) -> None:
    """Look again and again; the story is told when it never becomes so."""
    end_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end_s, f"never: {what}\n{story()}"
        time.sleep(0.03)
