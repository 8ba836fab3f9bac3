"""Processes that the benchmark starts: found by a mark in their environment, ended by pid."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

RUN_MARK = "HOLDFAST_BENCH_RUN"
NODE_MARK = "HOLDFAST_BENCH_NODE"
"""Set for every launcher and inherited by all that it starts, in whatever session or group."""


class Launched:
    """A launcher in a session of its own; every line it or its ranks print, with its time."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], cwd: Path) -> None:
        self.lines: list[tuple[int, str]] = []
        self.process = subprocess.Popen(
            command,
            env=dict(environment),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        assert self.process.stdout is not None
        reading = threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True)
        reading.start()

    def _read(self, output: IO[str]) -> None:
        for line in output:
            self.lines.append((time.monotonic_ns(), line.rstrip()))

    def first_line_after(self, at_ns: int) -> int | None:
        """When the first line after this time came."""
        return next((line_ns for line_ns, _ in self.lines if line_ns > at_ns), None)

    def tail(self, count: int = 8) -> list[str]:
        """The last lines."""
        return [line for _, line in self.lines[-count:]]


def read_marked(run: str, node: str | None = None) -> list[int]:
    """Pids of all processes of this run (and node) but our own."""
    wanted = {f"{RUN_MARK}={run}".encode()}
    if node is not None:
        wanted.add(f"{NODE_MARK}={node}".encode())
    found = []
    for entry in Path("/proc").iterdir():
        is_other = entry.name.isdecimal() and int(entry.name) != os.getpid()
        if is_other and wanted <= _environment(entry):
            found.append(int(entry.name))
    return found


def _environment(process: Path) -> set[bytes]:
    try:
        return set((process / "environ").read_bytes().split(b"\0"))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return set()


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal; a process that is gone needs none."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def kill_marked(run: str, node: str | None = None, within_s: float = 10.0) -> None:
    """SIGKILL all of this run (and node) until none is left; bounded."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        pids = read_marked(run, node)
        if not pids:
            return
        for pid in pids:
            kill(pid)
        time.sleep(0.02)
    raise TimeoutError(f"processes of {run} survived SIGKILL for {within_s:g} s")
