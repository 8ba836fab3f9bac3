"""Go or void: all ranks come to one verdict on the attempt's own store, or one of them ends it.

The first to write the verdict decides for all. Whoever arrives last writes `go`; whoever runs out
of time, missed the step or failed writes `void`. No collective, so nobody can be stuck in one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

GO = "go"
VOID = "void"


class Board(Protocol):
    """The part of torch.distributed.Store that is needed (PrefixStore, HashStore, TCPStore)."""

    def add(self, key: str, amount: int, /) -> int:
        """Add to a counter; answers its new value."""

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        """Write if the key holds `expected` (empty: is absent); answers what it holds then."""

    def check(self, keys: list[str], /) -> bool:
        """Whether all these keys exist."""

    def get(self, key: str, /) -> bytes:
        """Value of a key."""

    def delete_key(self, key: str, /) -> bool:
        """Remove a key; whether it was there."""


def until_next_look_s(waited_s: float) -> float:
    """How long to leave the board alone: a share of the time waited.

    What ranks in step wait for costs a millisecond, and a thousand ranks waiting for a slow one
    cost the store few looks.
    """
    return min(0.1, max(0.0005, waited_s / 8))


class BoardLost(Exception):
    """The store can't be reached any more: the attempt is ending.

    One that accepts and never answers is not found out here: `add` and `check` wait for it whatever
    its timeout (tried with torch 2.13). It lives in a launcher, whose silence ends the attempt.
    """


@dataclass(frozen=True)
class Agreement:
    """One question (a topic) among `world_size` ranks."""

    board: Board
    topic: str
    world_size: int

    def arrive(
        self,
        timeout_s: float,
        now: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> bool:
        """Say yes and wait for the verdict; True for go. Out of time: void for all."""
        try:
            if self.board.add(self._key("arrived"), 1) == self.world_size:
                return self._decide(GO) == GO
            return self._await(timeout_s, now, pause)
        except RuntimeError as error:
            raise BoardLost(str(error)) from error

    def void(self) -> bool:
        """Say no, for all; False when the others had gone already."""
        try:
            return self._decide(VOID) == VOID
        except RuntimeError as error:
            raise BoardLost(str(error)) from error

    def say_yes(self) -> bool | None:
        """Say yes and wait for nobody: the verdict, when this rank was the last one to be heard."""
        try:
            if self.board.add(self._key("arrived"), 1) == self.world_size:
                return self._decide(GO) == GO
        except RuntimeError as error:
            raise BoardLost(str(error)) from error
        return None

    def verdict(self) -> bool | None:
        """True for go, False for void, None while it is not decided."""
        try:
            if not self.board.check([self._key("verdict")]):
                return None
            return self.board.get(self._key("verdict")).decode() == GO
        except RuntimeError as error:
            raise BoardLost(str(error)) from error

    def forget(self) -> None:
        """Remove a question that nobody will ask about any more."""
        try:
            for name in ("arrived", "verdict"):
                self.board.delete_key(self._key(name))
        except RuntimeError as error:
            raise BoardLost(str(error)) from error

    def vote(self, agreed: bool, timeout_s: float) -> bool:
        """Arrive or void; True only when every rank agreed."""
        if agreed:
            return self.arrive(timeout_s)
        self.void()
        return False

    def is_also_mine(self, answer: str) -> bool:
        """Whether the first rank to answer this question gave the same answer."""
        try:
            return self.board.compare_set(self._key("answer"), "", answer).decode() == answer
        except RuntimeError as error:
            raise BoardLost(str(error)) from error

    def _await(
        self, timeout_s: float, now: Callable[[], float], pause: Callable[[float], None]
    ) -> bool:
        # Looking is kinder here than Store.wait: that one writes two lines to stderr whenever it
        # runs out of time, and keeps Python from handling signals.
        start = now()
        while not self.board.check([self._key("verdict")]):
            waited = now() - start
            if waited >= timeout_s:
                return self._decide(VOID) == GO
            pause(min(until_next_look_s(waited), timeout_s - waited))
        return self.board.get(self._key("verdict")).decode() == GO

    def _decide(self, verdict: str) -> str:
        return self.board.compare_set(self._key("verdict"), "", verdict).decode()

    def _key(self, name: str) -> str:
        return f"{self.topic}/{name}"
