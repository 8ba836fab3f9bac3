"""What a sidecar's server reads from and writes into the pages of its ranks: which snapshot a rank
knows to exist, and that (or that not) a step is on another node.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.page import Order, OrderKind, Word, parse_words
from holdfast_sidecar.ranks.page import RankPage, open_page

NO_MORE = 2**62
"""A step beyond all others: nothing is confirmed until further notice."""


@dataclass(frozen=True)
class Existing:
    """What a rank knows; -1: nothing.

    newest: the newest step that all ranks sealed. settled: of this rank's steps up to it, none but
    that one exists, nor ever will.
    """

    newest: int = -1
    settled: int = -1


@dataclass
class RankWords:
    """The pages of one attempt's ranks; opened when first needed, used from any thread."""

    directory: Path
    attempt: int
    _pages: dict[int, RankPage] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def existing(self, rank: int) -> Existing:
        """What this rank knows of the snapshots there are."""
        with self._lock:
            page = self._find(rank)
            if page is None:
                return Existing()
            words = parse_words(page.read())
            return Existing(words[Word.SNAPSHOT_EXISTING] - 1, words[Word.SNAPSHOT_SETTLED] - 1)

    def tell(self, rank: int, step: int, *, is_safe: bool) -> bool:
        """Write CONFIRMED for this rank, unless a later word stands there; whether it was written.

        `is_safe` False: what up to `step` is not confirmed won't be, so nobody need wait for it.
        """
        with self._lock:
            page = self._find(rank)
            if page is None:
                return False
            present = page.read_order(OrderKind.CONFIRMED)
            if present is not None and not _follows(present, step, is_safe):
                return False
            order = Order(
                kind=OrderKind.CONFIRMED,
                attempt=self.attempt,
                epoch=page.identity.epoch,
                step=step,
                deadline_ns=int(is_safe),  # it stands; 0 would withdraw it
                identifier=f"step-{step}",
            )
            page.write_order(order)
            return True

    def close(self) -> None:
        """Let go of the pages."""
        with self._lock:
            self._close_all()

    def _find(self, rank: int) -> RankPage | None:
        page = self._pages.get(rank)
        if page is None or not _is_in_place(page):
            self._close_all()
            self._open_all()
        return self._pages.get(rank)

    def _open_all(self) -> None:
        for path in self.directory.glob(f"attempt-{self.attempt}-local-*.page"):
            page = open_page(path)
            if page is None:
                continue
            if page.identity.rank in self._pages:
                page.close()
            else:
                self._pages[page.identity.rank] = page

    def _close_all(self) -> None:
        for page in self._pages.values():
            page.close()
        self._pages.clear()


def _is_in_place(page: RankPage) -> bool:
    """Whether no other process has claimed its place since."""
    try:
        return page.path.stat().st_ino == page.inode
    except FileNotFoundError:
        return False


def _follows(present: Order, step: int, is_safe: bool) -> bool:
    """Whether this word says more than the one that stands: a later step, or the end of waiting,
    or that waiting is worth while again."""
    if present.is_withdrawn and present.step >= NO_MORE:
        return is_safe
    return step > present.step
