"""Which ranks' deaths are waited for, and who is woken by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from holdfast.page import DEATH_OFFSET, Word
from holdfast_sidecar.deathwatch.waiter import WaiterProcess, Watch
from holdfast_sidecar.observation import RankLook
from holdfast_sidecar.pages import Pages, RankPage


class Waiter(Protocol):
    """Waits for mutexes in a process of its own."""

    def watch(self, watch: Watch) -> None:
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
                self.waiter.watch(Watch(key, held.path, held.inode, DEATH_OFFSET))
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
