"""What must work for the second run, tried before the first: that one takes a minute."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.demo import programs
from holdfast_sidecar.store.embedded import find_binary

LIMIT_S = 60.0
"""The launcher imports torch, which takes a minute from a cold network disk at worst."""


def rehearse() -> None:
    """BadInput when there is no server, or the launcher does not start."""
    find_binary()
    check_launcher(programs.launcher_help())


def check_launcher(command: Sequence[str]) -> None:
    """Let it print its help, which takes all its imports; BadInput with its last line if not."""
    try:
        tried = subprocess.run(
            command,
            env=programs.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BadInput(f"holdfast run does not start within {LIMIT_S:g} s") from None
    if tried.returncode != 0:
        lines = tried.stderr.strip().splitlines() or [f"exit code {tried.returncode}"]
        raise BadInput(f"holdfast run does not start here: {lines[-1].removeprefix('holdfast: ')}")
