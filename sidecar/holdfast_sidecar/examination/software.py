"""Python, torch and the C library, by what is installed; torch is never imported."""

from __future__ import annotations

import platform
import re
import sys
from importlib import metadata

from holdfast_sidecar import __version__
from holdfast_sidecar.examination.check import FAIL, OK, WARN, Check

OLDEST_TORCH = (2, 10)
"""Before it, `torch.load(weights_only=True)` can corrupt memory (CVE-2026-24747)."""

OLDEST_PYTHON = (3, 11)


def check_software() -> list[Check]:
    """Look at this interpreter and what is installed in it."""
    return [
        judge_python(
            sys.version_info[:3], __version__, getattr(sys, "_is_gil_enabled", lambda: True)()
        ),
        judge_torch(_installed("torch")),
        judge_libc(platform.libc_ver()[0]),
    ]


def judge_python(version: tuple[int, ...], holdfast_version: str, has_gil: bool = True) -> Check:
    """Whether this Python will do."""
    text = ".".join(map(str, version))
    if version[:2] < OLDEST_PYTHON:
        return Check("python", FAIL, f"Python {text} is too old: 3.11 or later is needed")
    if not has_gil:
        line = f"Python {text} is free-threaded: Holdfast needs a build with the GIL"
        return Check("python", FAIL, line)
    return Check("python", OK, f"Python {text}, holdfast {holdfast_version}")


def judge_torch(version: str | None) -> Check:
    """Whether this torch will do; a node that only watches needs none."""
    if version is None:
        line = "not installed: enough to watch, but training needs `pip install holdfast[train]`"
        return Check("torch", WARN, line)
    if parse_release(version) < OLDEST_TORCH:
        return Check("torch", FAIL, f"torch {version} is too old: 2.10 or later is needed")
    return Check("torch", OK, f"torch {version}")


def judge_libc(name: str) -> Check:
    """The death watch rests on glibc's robust mutexes; a pidfd does without, a little later."""
    if name == "glibc":
        return Check("libc", OK, "glibc")
    return Check("libc", WARN, "not glibc: a rank's death is seen a little later")


def parse_release(version: str) -> tuple[int, int]:
    """Major and minor of `2.13.0+cpu`; (0, 0) when it has none."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
