"""promtool and amtool, where they are installed: what they say of rules, tests and routes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PATIENCE_S = 300.0
"""All tests that come with Holdfast take half a minute of a core, and on a busy machine twice that
or more."""

PACKAGES = {"promtool": "prometheus", "amtool": "prometheus-alertmanager"}
"""Program -> Debian's package."""


@dataclass(frozen=True)
class Said:
    """What a program made of it. `ok` None: it is not installed."""

    what: str
    ok: bool | None
    lines: Sequence[str] = ()


def ask(what: str, program: str, *arguments: str | Path) -> Said:
    """Run it over files; its output where it did not like them."""
    path = shutil.which(program)
    if path is None:
        package = PACKAGES[program]
        return Said(what, None, [f"{program} is not installed (Debian: apt-get install {package})"])
    try:
        done = subprocess.run(
            [path, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Said(what, False, [f"{program}: {error}"])
    told = (done.stdout + done.stderr).splitlines()
    return Said(what, done.returncode == 0, [] if done.returncode == 0 else told)
