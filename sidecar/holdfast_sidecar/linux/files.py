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


# Attributes of /sys that are read again and again, kept open: to look up and open one takes six
# times as long as to read it.
#
# For attributes alone, which one read hands out whole, made anew at each. What is gone says so
# (ENODEV) to whoever holds it open, also where another of the same name is there by then; then the
# path is asked again. It is not so of ordinary files.

MOST = 400
"""Kept open at once, of the 1,024 descriptors that a process commonly may have; the kernel keeps a
page for each. Twelve RDMA ports with 33 files each; of more ports the rest are read by their path.
"""


class KeptFiles:
    """By path. Not for more than one thread."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._open: dict[str, int] = {}

    def __del__(self) -> None:
        for descriptor in self._open.values():
            os.close(descriptor)

    def __len__(self) -> int:
        return len(self._open)

    def read_if_any(self, path: str) -> str:
        """All of the attribute as it is now; empty when it can't be read, or is gone."""
        descriptor = self._open.get(path)
        try:
            if descriptor is not None:
                try:
                    return _read(descriptor)
                except OSError:
                    self._close(path)
            return self._read_first(path)
        except OSError:
            return ""

    def forget(self, directory: str) -> None:
        """Close what is below: nobody reads it any more."""
        for path in [path for path in self._open if path.startswith(f"{directory}/")]:
            self._close(path)

    def _read_first(self, path: str) -> str:
        if len(self._open) >= self._most:
            return read_text(path)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            text = _read(descriptor)
        except OSError:
            os.close(descriptor)
            raise
        self._open[path] = descriptor
        return text

    def _close(self, path: str) -> None:
        os.close(self._open.pop(path))


def _read(descriptor: int) -> str:
    return os.pread(descriptor, CHUNK_BYTES, 0).decode(errors="replace")


# Which start of the machine this is: what a reboot was asked for is over under another id.

BOOT_ID = "/proc/sys/kernel/random/boot_id"
"""Made anew by the kernel at each start; containers see that of their host (proc(5))."""

MOST_BYTES = 64


def read_boot(path: str = BOOT_ID) -> str:
    """The kernel's boot id; empty where it can't be read: then no reboot is noticed."""
    return read_if_any(path, MOST_BYTES).strip()[:MOST_BYTES]
