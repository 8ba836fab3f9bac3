"""Which row is chosen, and which rows are seen. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Cursor:
    """A place in a list that changes under it: it stays with its row wherever that goes."""

    key: str = ""
    """Of the chosen row; empty: whichever is at the place."""
    place: int = 0
    first: int = 0
    """The first row that is seen."""

    def settled(self, keys: Sequence[str], room: int) -> Cursor:
        """The same row in a new list, or its neighbour when it is gone, where it is seen."""
        if not keys:
            return Cursor()
        place = keys.index(self.key) if self.key in keys else min(self.place, len(keys) - 1)
        room = max(room, 1)
        first = min(max(self.first, place - room + 1), place)
        return Cursor(keys[place], place, max(min(first, len(keys) - room), 0))

    def scrolled(self, by: int, keys: Sequence[str], room: int) -> Cursor:
        """All rows so many up, as far as there are more: no row is chosen, and the first leads."""
        first = min(max(self.first + by, 0), max(len(keys) - max(room, 1), 0))
        return Cursor("", first, first)

    def moved(self, by: int, keys: Sequence[str], room: int) -> Cursor:
        """So many rows down."""
        if not keys:
            return Cursor()
        place = min(max(self.place + by, 0), len(keys) - 1)
        return Cursor(keys[place], place, self.first).settled(keys, room)
