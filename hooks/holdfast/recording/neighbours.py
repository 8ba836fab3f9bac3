"""With whom a rank exchanges messages in each of its steps, in both directions, and from whom it
hears before it says anything: so the stages of a pipeline show which they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.contract.page import FIRST, UNCLEAR

MOST = 8
"""Neighbours that are told; a stage has two."""

Message = tuple[bool, "int | None"]
"""Whether it is sent, and to whom or from whom; None: from anybody."""

Pattern = tuple[int, tuple[int, ...]]
"""After whom, and with whom."""


class Neighbours:
    """Told once two steps in a row are alike, and once more when a later one is not."""

    def __init__(self, tell: Callable[[int, tuple[int, ...]], None]) -> None:
        self._tell = tell
        self._step = -1
        self._sent: set[int] = set()
        self._heard: set[int] = set()
        self._after: int | None = None
        self._before: tuple[int, Pattern] = (-1, (UNCLEAR, ()))
        """The step before in which messages went both ways, and how."""
        self._told: Pattern | None = None

    def note(self, step: int, messages: Sequence[Message]) -> None:
        """These begin now, together. step: how many are complete."""
        if step != self._step:
            self._close()
            self._step = step
        if self._after is None:
            self._after = _after(messages)
        for is_sent, peer in messages:
            if peer is not None:
                (self._sent if is_sent else self._heard).add(peer)

    def _close(self) -> None:
        both = self._sent & self._heard
        if both and self._after is not None:
            self._follow((self._after, tuple(sorted(both)[:MOST])))
        self._sent, self._heard, self._after = set(), set(), None

    def _follow(self, pattern: Pattern) -> None:
        before, self._before = self._before, (self._step, pattern)
        if self._told is None:
            if before == (self._step - 1, pattern):
                self._say(pattern)
        elif pattern != self._told and self._told[0] != UNCLEAR:
            self._say((UNCLEAR, pattern[1]))

    def _say(self, pattern: Pattern) -> None:
        self._told = pattern
        self._tell(*pattern)


def _after(messages: Sequence[Message]) -> int:
    if all(is_sent for is_sent, _ in messages):
        return FIRST
    peers = {peer for _, peer in messages}
    only = peers.pop() if len(peers) == 1 else None
    return UNCLEAR if only is None or any(is_sent for is_sent, _ in messages) else only
