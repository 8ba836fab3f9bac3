"""Files that the kernel writes while they are read: small, and read at every tick."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

CHUNK_BYTES = 4096


@dataclass(frozen=True)
class KernelTrees:
    """The trees in which the kernel tells of the machine, all under one root (setting
    `paths.machine_root`): a container sees its host's elsewhere, and tests bring their own."""

    root: str = "/"

    @property
    def proc(self) -> Path:
        """`/proc`."""
        return Path(self.root, "proc")

    @property
    def sys(self) -> Path:
        """`/sys`."""
        return Path(self.root, "sys")

    @property
    def dev(self) -> Path:
        """`/dev`."""
        return Path(self.root, "dev")

    @property
    def kernel_log(self) -> Path:
        """`/dev/kmsg`: whoever reads the kernel's log opens this one, and no other."""
        return self.dev / "kmsg"


def read_text(path: str | os.PathLike[str], most_bytes: float = math.inf) -> str:
    """All of /proc/… or /sys/…, up to about `most_bytes`; bytes that are no UTF-8 are replaced.
    Raises OSError.

    At a quarter of what `pathlib` takes: a sidecar with eight ranks reads fifty of them a second.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = os.read(descriptor, CHUNK_BYTES)
        last = content
        while last and len(content) < most_bytes:
            last = os.read(descriptor, CHUNK_BYTES)
            content += last
    finally:
        os.close(descriptor)
    return content.decode(errors="replace")


def read_if_any(path: str | os.PathLike[str], most_bytes: float = math.inf) -> str:
    """The same; empty when it can't be read, or is gone."""
    try:
        return read_text(path, most_bytes)
    except OSError:
        return ""


def list_names(directory: str | os.PathLike[str]) -> list[str]:
    """What is in a directory of /proc or /sys, sorted; nothing when it can't be read."""
    try:
        return sorted(os.listdir(directory))  # noqa: PTH208 - names are wanted, not paths
    except OSError:
        return []


def names_in(directory: str | os.PathLike[str]) -> list[str]:
    """The same, sorted; nothing only where there is no such directory. Raises OSError else."""
    try:
        return sorted(os.listdir(directory))  # noqa: PTH208 - names are wanted, not paths
    except (FileNotFoundError, NotADirectoryError):
        return []


def link_name(path: str | os.PathLike[str]) -> str:
    """The name of what a link of /sys leads to (`device` to a PCI address, `driver` to a driver);
    empty where it leads nowhere."""
    try:
        return Path(path).resolve(strict=True).name
    except (OSError, RuntimeError):
        return ""
