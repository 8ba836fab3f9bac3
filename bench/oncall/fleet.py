"""The program that serves a made-up job, started and ended."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from select import select

from bench.benchmark import NotRun

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "bench.oncall.programs.serve_fleet"
START_LIMIT_S = 180.0
"""A leader that has seen 120 columns of 1,024 ranks takes 7 s of a processor, which may be busy."""


@dataclass(frozen=True)
class Fleet:
    """One that answers. addresses: host:port by node, the leader's first."""

    addresses: dict[str, str]
    pid: int

    @property
    def leader(self) -> str:
        """Where the leader's exporter is."""
        return next(iter(self.addresses.values()))


@contextmanager
def serving(ranks: int, *options: str) -> Iterator[Fleet]:
    """A job of so many ranks, until the end of the block."""
    folder = tempfile.mkdtemp(prefix="holdfast-bench-")
    process = subprocess.Popen(
        [sys.executable, "-m", PROGRAM, str(ranks), folder, *options],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Fleet(_addresses(process), process.pid)
    finally:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.kill()
        process.wait(timeout=10)
        process.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)


def _addresses(process: subprocess.Popen[str]) -> dict[str, str]:
    assert process.stdout is not None
    ready, _, _ = select([process.stdout], [], [], START_LIMIT_S)
    line = process.stdout.readline() if ready else ""
    if not line:
        raise NotRun(f"the made-up job was not served within {START_LIMIT_S:g} s")
    told: dict[str, str] = json.loads(line)
    return told
