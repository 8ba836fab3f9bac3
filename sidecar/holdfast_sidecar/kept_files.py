"""Attributes of /sys that are read again and again, kept open: to look up and open one takes six
times as long as to read it.

For attributes alone, which one read hands out whole, made anew at each. What is gone says so
(ENODEV) to whoever holds it open, also where another of the same name is there by then; then the
path is asked again. It is not so of ordinary files.
"""

from __future__ import annotations

import os

from holdfast_sidecar.kernel_files import CHUNK_BYTES, read_text

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
