"""What the figures were measured on: enough to judge them by, nothing that names the machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

import psutil


def read_machine() -> dict[str, str | int | float]:
    """Cores, memory, processor, system, and the versions that matter."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "cpu": parse_cpu_model(Path("/proc/cpuinfo").read_text()),
        "os": platform.freedesktop_os_release().get("PRETTY_NAME", platform.system()),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
    }


def parse_cpu_model(cpuinfo: str) -> str:
    """The processor's name from /proc/cpuinfo; the architecture where it has none."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def read_commit(root: Path) -> str:
    """The commit that is checked out, `+` appended when tracked files differ from it."""
    commit = _git(root, "rev-parse", "--short=12", "HEAD")
    if not commit:
        return "unknown"
    return commit + ("+" if _git(root, "status", "--porcelain", "--untracked-files=no") else "")


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return done.stdout.strip() if done.returncode == 0 else ""
