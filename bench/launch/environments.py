"""The interpreters of the contestants: each peer has a virtual environment of its own."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

from bench.benchmark import NotRun

VENVS = Path(__file__).resolve().parent.parent / ".venvs"

PACKAGES = {
    "torchrun": ("torch==2.13.0",),
    "nvrx": ("torch==2.13.0", "nvidia-resiliency-ext==0.4.1"),
}

INSTALL_LIMIT_S = 900.0


def python(name: str) -> Path:
    """Interpreter of this environment, made when it is not there; NotRun when it can't be made."""
    reason = _make(name)
    if reason:
        raise NotRun(reason)
    return VENVS / name / "bin" / "python"


@functools.cache
def _make(name: str) -> str:
    """Make the environment; answers why it failed (remembered: a second try would take as long)."""
    home = VENVS / name
    complete = home / "complete"
    if complete.exists() and complete.read_text() == "\n".join(PACKAGES[name]):
        return ""
    try:
        _run([sys.executable, "-m", "venv", "--clear", str(home)])
        _run([str(home / "bin" / "pip"), "install", "--quiet", *PACKAGES[name]])
    except subprocess.CalledProcessError as failure:
        print(failure.stderr, file=sys.stderr)
        return f"{name} can't be installed here"
    except subprocess.TimeoutExpired:
        return f"{name} was not installed within {INSTALL_LIMIT_S:g} s"
    complete.write_text("\n".join(PACKAGES[name]))
    return ""


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_LIMIT_S)
