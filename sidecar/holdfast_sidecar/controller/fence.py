"""The highest fence this node ever obeyed, written down so that no restart forgets it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.contract.own_directory import make_closed
from holdfast_sidecar.linux.threads import NONE_LEFT, start_thread
from holdfast_sidecar.store.protocol import Section, View

log = logging.getLogger(__name__)

AGAIN_S = 30.0
"""After a write that failed: a disk that is full stays so for minutes."""


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
    """Obeys in memory first, and then writes the fence down wherever it can whenever it rises.

    `local`: a second place, in memory that the node's processes share and a sidecar's end leaves
    alone. With one, `path`, which may be in a home on the network that does not answer, is written
    by a thread of its own: nobody waits for it.
    """

    def __init__(self, path: Path, local: Path | None = None) -> None:
        self._path = path
        self._local = local
        self._writing = threading.Lock()
        self._again_at_s = 0.0
        self.fence = read_fence(path)
        if local is not None:
            other = read_fence(local)
            self.fence = self.fence.raised_to(other.attempt, other.epoch)
        self.obstacle = ""
        """Why it is not on disk; empty: it is, or nothing had to be written yet."""

    def obey(self, attempt: int, epoch: int) -> bool:
        """Raise the fence to this order's, or refuse it as stale."""
        if not self.fence.admits(attempt, epoch):
            return False
        raised = self.fence.raised_to(attempt, epoch)
        is_owed = bool(self.obstacle) and time.monotonic() >= self._again_at_s
        if raised != self.fence or is_owed:
            self.fence = raised
            self._keep()
        return True

    def _keep(self) -> None:
        if self._local is None:
            self._write_to_disk()
            return
        if self._local.parent.is_dir():  # its owner makes it, and removes it
            with contextlib.suppress(OSError):
                _write(self._local, self.fence)
        if start_thread(self._write_to_disk, "fence") is None:
            self._put_off(NONE_LEFT)

    def _write_to_disk(self) -> None:
        with self._writing:
            try:
                make_closed(self._path.parent)
                _write(self._path, self.fence)
            except OSError as error:
                self._put_off(error.strerror or str(error))
            else:
                self.obstacle = ""

    def _put_off(self, why: str) -> None:
        if not self.obstacle:
            log.warning("the fence can't be written to %s: %s", self._path, why)
        self._again_at_s = time.monotonic() + AGAIN_S
        self.obstacle = f"{self._path} can't be written: {why}"


def _write(path: Path, fence: Fence) -> None:
    """Temporary name, fsync, rename."""
    temporary = path.with_suffix(".new")
    with temporary.open("w") as file:
        json.dump({"attempt": fence.attempt, "epoch": fence.epoch}, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def read_fence(path: Path) -> Fence:
    """The fence in this file; the lowest one when there is none or it can't be read."""
    try:
        value = json.loads(path.read_text())
        return Fence(int(value["attempt"]), int(value["epoch"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Fence()


# How long something has been so, and what time it is: neither by a clock that may be set.


class Stopwatch:
    """How long something has been so: starts again when its key changes."""

    def __init__(self) -> None:
        self._started: dict[str, tuple[str, float]] = {}

    def elapsed(self, name: str, key: str, now: float) -> float:
        """Seconds since `name` first had this key. An empty key stops the watch."""
        if not key:
            self._started.pop(name, None)
            return 0.0
        if self._started.get(name, ("", 0.0))[0] != key:
            self._started[name] = (key, now)
        return now - self._started[name][1]


class SharedClock:
    """A wall clock that all who lead share: the store's, read once, and carried on by this node's
    monotonic clock. Whoever sets a node's clock moves no deadline."""

    def __init__(self, ask: Callable[[], float]) -> None:
        self._ask = ask
        self._read_for: object = None
        self._ahead_s = 0.0

    def unix_s(self, occasion: object, now: float) -> float:
        """The time at `now` (monotonic seconds); asks anew on each new occasion."""
        if occasion != self._read_for:
            self._ahead_s, self._read_for = self._ask() - now, occasion
        return now + self._ahead_s


# When each node's heartbeat was last seen to move, as wall clock time for the metrics page.
#
# Liveness is told by survivors: a dead node can't export its own death. What is done about it is
# judged elsewhere, on a monotonic clock.

KEPT_S = 3600.0
"""A node whose report left the store, as when Redis came back empty: so long service discovery goes
on listing it, and alerts know it as lost."""


@dataclass
class HeartbeatTimes:
    """Remembers every node's newest heartbeat."""

    _seen: dict[str, tuple[str, float]] = field(default_factory=dict)
    """With the text that came then: each beat is in the text, so that it need not be parsed."""
    _view: View | None = None

    def seen(self, view: View | None, now_unix_s: float) -> dict[str, float]:
        """Node -> when it was last seen to move; a node that left the store is forgotten
        an hour after that."""
        if view is not None and view is not self._view:
            self._view = view
            reports = view.section(Section.NODES)
            self._seen = {
                node: known
                for node, known in self._seen.items()
                if node in reports or now_unix_s - known[1] < KEPT_S
            }
            for node, text in reports.items():
                if node not in self._seen or self._seen[node][0] != text:
                    self._seen[node] = (text, now_unix_s)
        return {node: at for node, (_, at) in self._seen.items()}
