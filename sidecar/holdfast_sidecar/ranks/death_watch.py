"""Which ranks' deaths are waited for, and who is woken by one."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from holdfast.contract import environment
from holdfast.contract.ending_processes import signal_child
from holdfast.contract.page import DEATH_OFFSET, Word
from holdfast.contract.permit import own_child
from holdfast_sidecar.linux.threads import start_thread
from holdfast_sidecar.ranks.observation import RankLook
from holdfast_sidecar.ranks.page import Pages, RankPage
from holdfast_sidecar.records.formatting import how_it_ended

log = logging.getLogger(__name__)


# The child that waits, kept alive: told which pages to watch, it says whose mutex was let go.

COMMAND = (sys.executable, "-I", "-S", str(Path(__file__).with_name("death_watch_child.py")))
"""Isolated and without site-packages: it starts in a hundredth of a second and imports nothing of
anybody's. By path, so that not even this package is needed."""

PAUSE_S = 1.0
"""Between a child that ended and the next one."""

FAILURES_LIMIT = 10
"""Children in a row that ended at once until no more are started: ends are then seen by the next
look at the process alone."""

AT_ONCE_S = 10.0
"""One that lived longer is no such failure."""


@dataclass(frozen=True)
class MutexWatch:
    """A mutex in a page."""

    key: str
    """Without spaces."""
    path: Path
    inode: int
    offset: int

    def order(self) -> str:
        """The line that asks for it."""
        return f"watch {self.key} {self.inode} {self.offset} {self.path}\n"


class WaiterProcess:
    """Starts the child with the first watch, and another one with the same watches when it ends.

    `told` is called in a thread of this object: with a key, and whether its mutex was let go (else
    it can't be watched).
    """

    def __init__(
        self, told: Callable[[str, bool], None], command: tuple[str, ...] = COMMAND
    ) -> None:
        self._told = told
        self._command = command
        self._lock = threading.Lock()
        self._watches: dict[str, MutexWatch] = {}
        self._child: subprocess.Popen[str] | None = None
        self._keeper: threading.Thread | None = None
        self._closing = threading.Event()
        self._failures = 0

    @property
    def pid(self) -> int:
        """Of the child; 0 while there is none."""
        child = self._child
        return 0 if child is None else child.pid

    def watch(self, watch: MutexWatch) -> None:
        """Wait for this mutex, until it is let go or forgotten."""
        with self._lock:
            self._watches[watch.key] = watch
            self._send(watch.order())
            if self._keeper is None:
                self._keeper = start_thread(self._keep, "deathwatch")

    def forget(self, key: str) -> None:
        """Wait for it no longer."""
        with self._lock:
            if self._watches.pop(key, None) is not None:
                self._send(f"forget {key}\n")

    def close(self) -> None:
        """End the child."""
        self._closing.set()
        with self._lock:
            if self._child is not None:
                signal_child(own_child(self._child))
        if self._keeper is not None:
            self._keeper.join(PAUSE_S)

    def _keep(self) -> None:
        while not self._closing.is_set() and self._failures < FAILURES_LIMIT:
            try:
                child = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    env=_surroundings(),
                    cwd="/",
                )
            except OSError as error:  # no memory, no process left
                log.warning("no death watch could be started: %s", error)
                self._failures += 1
            else:
                self._follow(child)
            self._closing.wait(PAUSE_S)
        if not self._closing.is_set():
            log.warning("the death watch keeps ending: a rank's end is seen at the next look")

    def _follow(self, child: subprocess.Popen[str]) -> None:
        """Hand it all watches, and pass on what it says until it ends."""
        with self._lock:
            self._child = child
            for watch in self._watches.values():
                self._send(watch.order())
            if self._closing.is_set():
                signal_child(own_child(child))
        started_s = time.monotonic()
        assert child.stdout is not None
        for line in child.stdout:
            key, _, what = line.strip().partition(" ")
            with self._lock:
                is_wanted = self._watches.pop(key, None) is not None
            if is_wanted:
                self._told(key, what == "let_go")
        with self._lock:
            self._child = None
        assert child.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
        child.stdout.close()
        code = child.wait()
        lived_s = time.monotonic() - started_s
        self._failures = self._failures + 1 if lived_s < AT_ONCE_S else 0
        if not self._closing.is_set():
            log.warning("the death watch %s; starting another", how_it_ended(code))

    def _send(self, line: str) -> None:
        if self._child is None or self._child.stdin is None:
            return
        # One that just ended: the next one is told of all watches.
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._child.stdin.write(line)
            self._child.stdin.flush()


def _surroundings() -> dict[str, str]:
    """As the sidecar's, for a Python may need them to find its libraries; but no secrets."""
    return {k: v for k, v in os.environ.items() if k not in environment.NEVER_FOR_RANKS}


class Waiter(Protocol):
    """Waits for mutexes in a process of its own."""

    def watch(self, watch: MutexWatch) -> None:
        """Wait for this one."""

    def forget(self, key: str) -> None:
        """Wait for it no longer."""

    def close(self) -> None:
        """Wait for nothing any more."""


@dataclass
class DeathWatch:
    """Watches every rank of the newest attempt that holds its mutex; `wake` asks for a look."""

    pages: Pages
    wake: Callable[[], None]
    waiter: Waiter = field(init=False)
    _watched: set[str] = field(default_factory=set)
    """Asked for once, whatever became of it: who replaced its program lets go, and lives."""

    def __post_init__(self) -> None:
        self.waiter = WaiterProcess(self._told)

    def follow(self, looks: Sequence[RankLook]) -> None:
        """Watch whoever came, forget whoever went."""
        holders = {look.identity for look in looks if _holds(look)}
        present = {_key(held): held for held in self.pages.held() if held.identity in holders}
        for key in self._watched - present.keys():
            self.waiter.forget(key)
        for key, held in present.items():
            if key not in self._watched:
                self.waiter.watch(MutexWatch(key, held.path, held.inode, DEATH_OFFSET))
        self._watched = set(present)

    def close(self) -> None:
        """Watch nobody any more."""
        self.waiter.close()

    def _told(self, key: str, was_let_go: bool) -> None:
        if was_let_go:
            self.wake()


def _holds(look: RankLook) -> bool:
    return bool(look.words[Word.DEATH_WATCH])


def _key(held: RankPage) -> str:
    return f"{held.inode}-{held.identity.claimed_ns}"


class NoDeathWatch:
    """Nobody is waited for; ends are seen when the processes are looked at."""

    def follow(self, looks: Sequence[RankLook]) -> None:
        """Nobody to watch."""

    def close(self) -> None:
        """Nothing to end."""
