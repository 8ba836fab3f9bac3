"""A measurement in a process of its own, so that what it imports does not stay in this one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.benchmark import NotRun

ROOT = Path(__file__).resolve().parent.parent.parent


def run_child(
    command: Sequence[str], limit_s: float, environment: Mapping[str, str] | None = None
) -> str:
    """What it prints; NotRun when it fails or takes too long."""
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotRun(f"it was not through in {limit_s:g} s") from None
    if done.returncode != 0:
        print(done.stderr, file=sys.stderr)
        raise NotRun(f"it failed with exit code {done.returncode}")
    return done.stdout
