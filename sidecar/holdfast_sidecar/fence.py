"""The highest fence this node ever obeyed, kept on disk so that no restart forgets it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, order=True)
class Fence:
    """(attempt, leader epoch). An order below either part of it is stale."""

    attempt: int = -1
    epoch: int = 0

    def admits(self, attempt: int, epoch: int) -> bool:
        """Whether an order with this fence may be obeyed."""
        return attempt >= self.attempt and epoch >= self.epoch

    def raised_to(self, attempt: int, epoch: int) -> Fence:
        """The fence after obeying such an order."""
        return Fence(max(self.attempt, attempt), max(self.epoch, epoch))


class FenceFile:
    """Reads the fence once, writes it whenever it rises (temporary name, fsync, rename)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.fence = read_fence(path)

    def obey(self, attempt: int, epoch: int) -> bool:
        """Raise the fence to this order's, or refuse it as stale."""
        if not self.fence.admits(attempt, epoch):
            return False
        raised = self.fence.raised_to(attempt, epoch)
        if raised != self.fence:
            self._write(raised)
            self.fence = raised
        return True

    def _write(self, fence: Fence) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = self._path.with_suffix(".new")
        with temporary.open("w") as file:
            json.dump({"attempt": fence.attempt, "epoch": fence.epoch}, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)


def read_fence(path: Path) -> Fence:
    """The fence in this file; the lowest one when there is none or it can't be read."""
    try:
        value = json.loads(path.read_text())
        return Fence(int(value["attempt"]), int(value["epoch"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Fence()
