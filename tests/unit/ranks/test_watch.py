"""Who is watched, and who is not watched again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.unit.pretend_pages import set_word, write_page

from holdfast.contract.page import DEATH_OFFSET, Word
from holdfast_sidecar.ranks.death_watch import DeathWatch, MutexWatch
from holdfast_sidecar.ranks.page import Pages
from holdfast_sidecar.ranks.probe import RanksProbe


@dataclass
class MemoryWaiter:
    """Remembers what it was asked."""

    watched: list[MutexWatch] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    is_closed: bool = False

    def watch(self, watch: MutexWatch) -> None:
        self.watched.append(watch)

    def forget(self, key: str) -> None:
        self.forgotten.append(key)

    def close(self) -> None:
        self.is_closed = True


@dataclass
class Scene:
    """Pages in a directory, looked at and followed."""

    directory: Path
    pages: Pages
    waiter: MemoryWaiter = field(default_factory=MemoryWaiter)
    woken: int = 0

    def __post_init__(self) -> None:
        self.probe = RanksProbe(self.pages)
        self.watch = DeathWatch(self.pages, self._wake)
        self.watch.waiter = self.waiter

    def _wake(self) -> None:
        self.woken += 1

    def rank(self, local_rank: int = 0, attempt: int = 0, holds: bool = True) -> Path:
        path = write_page(self.directory, attempt, local_rank, claimed_ns=attempt + 1)
        set_word(path, Word.DEATH_WATCH, int(holds))
        return path

    def look(self) -> None:
        self.watch.follow(self.probe.read(1.0))


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    pages = Pages(tmp_path)
    yield Scene(tmp_path, pages)
    pages.close()


def test_whoever_holds_the_mutex_is_watched_once(scene: Scene) -> None:
    path = scene.rank(0)
    scene.rank(1)
    scene.look()
    scene.look()
    assert [watch.path.name for watch in scene.waiter.watched] == [
        "attempt-0-local-0.page",
        "attempt-0-local-1.page",
    ]
    first = scene.waiter.watched[0]
    assert (first.path, first.inode, first.offset) == (path, path.stat().st_ino, DEATH_OFFSET)


def test_who_does_not_hold_it_yet_is_watched_once_he_does(scene: Scene) -> None:
    path = scene.rank(holds=False)
    scene.look()
    assert scene.waiter.watched == []
    set_word(path, Word.DEATH_WATCH, 1)
    scene.look()
    assert len(scene.waiter.watched) == 1


def test_ranks_of_an_attempt_that_is_over_are_forgotten(scene: Scene) -> None:
    scene.rank(0)
    scene.look()
    scene.rank(0, attempt=1)
    scene.look()
    before, after = scene.waiter.watched
    assert scene.waiter.forgotten == [before.key]
    assert after.key != before.key


def test_one_that_let_go_wakes_the_loop_and_is_not_watched_again(scene: Scene) -> None:
    """A program that replaced itself lets go and lives: it would wake the loop for ever."""
    scene.rank()
    scene.look()
    scene.watch._told(scene.waiter.watched[0].key, True)
    assert scene.woken == 1
    scene.look()
    assert len(scene.waiter.watched) == 1


def test_one_that_can_not_be_watched_wakes_nobody(scene: Scene) -> None:
    scene.rank()
    scene.look()
    scene.watch._told(scene.waiter.watched[0].key, False)
    assert scene.woken == 0


def test_closing_ends_the_waiter(scene: Scene) -> None:
    scene.watch.close()
    assert scene.waiter.is_closed
