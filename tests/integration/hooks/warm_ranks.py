"""Ranks from the nursery, in the place of processes that were started by the test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast.rank import attachment

LOOK_EVERY_S = 0.01


@dataclass
class WarmRank:
    """What tests use of a `Popen`."""

    pid: int
    folder: Path
    """What it wrote, and the code with which it ended."""
    returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and (path := self.folder / "code").exists():
            self.returncode = int(path.read_text())
        return self.returncode

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def communicate(self, timeout: float = 60.0) -> tuple[str, str]:
        """Wait for its end; what it wrote to stdout and stderr."""
        end_s = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > end_s:
                raise subprocess.TimeoutExpired(f"rank {self.pid}", timeout)
            time.sleep(LOOK_EVERY_S)
        return (self.folder / "out").read_text(), (self.folder / "err").read_text()


class Nursery:
    """The process that they come from; started when the first is asked for."""

    def __init__(self) -> None:
        environment = {**os.environ, **attachment.worker_environment(os.environ)}
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("nursery.py"))],
            env={**environment, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, script: Path, environment: Mapping[str, str], folder: Path) -> WarmRank:
        """Fork a rank that runs this script; `folder` is for what it says."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        folder.mkdir()
        request = {
            "environment": dict(environment),
            "directory": str(script.parent),
            "script": str(script),
            **{name: str(folder / name) for name in ("out", "err", "code")},
        }
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return WarmRank(int(self._process.stdout.readline()), folder)

    def close(self) -> None:
        self._process.communicate(timeout=60)
