"""What somebody chose to see. Pure: each key makes another choice of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from holdfast_sidecar.export.live.view import LiveView


@dataclass(frozen=True)
class Latest:
    """The newest view. Times are this process' monotonic clock."""

    view: LiveView | None = None
    told_by: str = ""
    """Who was asked, in words."""
    away_since_s: float | None = None
    """Since when there is no answer; None: there is one."""
    why: str = ""
    """Why there is none."""

    def answered(self, view: LiveView, told_by: str) -> Latest:
        """There is a newer one."""
        return Latest(view, told_by)

    def unanswered(self, why: str, now_s: float) -> Latest:
        """Nobody answered; what was known is kept."""
        since_s = now_s if self.away_since_s is None else self.away_since_s
        return replace(self, away_since_s=since_s, why=why)

    def silence_s(self, now_s: float) -> float | None:
        """How long there has been no answer; None: there is one."""
        return None if self.away_since_s is None else max(now_s - self.away_since_s, 0.0)


class Pane(Enum):
    """What fills the screen below the heading."""

    RANKS = "ranks"
    INCIDENTS = "incidents"
    FINDINGS = "findings"
    SLOW = "slow"
    ACCOUNT = "account"
    NODES = "nodes"
    HELP = "help"


READABLE = (Pane.RANKS, Pane.INCIDENTS, Pane.FINDINGS, Pane.SLOW)
"""Panes whose rows say more than fits into one."""


class Order(Enum):
    """Which rows stand first."""

    NUMBER = "by number"
    WORST = "worst first"
    STEP_TIME = "longest step first"
    PHASE_AGE = "longest in its phase first"


class Grouping(Enum):
    """Whether a row is a rank or a node."""

    FITTING = "what fits"
    RANKS = "ranks"
    NODES = "nodes"


NODE_KEY = "node "
"""So the key of a row begins that stands for a node's ranks."""


@dataclass(frozen=True)
class ViewState:
    """All that keys can change."""

    pane: Pane = Pane.RANKS
    order: Order = Order.NUMBER
    grouping: Grouping = Grouping.FITTING
    filter: str = ""
    """Words that a row must have; see `drawing.sieve`."""
    opened: frozenset[str] = frozenset()
    """Keys of nodes whose ranks are shown, too."""
    read: str = ""
    """Key of the row that is read in full; empty: the list is shown."""
    is_paused: bool = False
    """Whether the picture stands still."""

    def at(self, pane: Pane) -> ViewState:
        """Another pane; the same one again: its list."""
        return replace(self, pane=pane, read="")

    def beside(self, by: int) -> ViewState:
        """The next pane, or the one before."""
        panes = list(Pane)
        return self.at(panes[(panes.index(self.pane) + by) % len(panes)])

    def with_next_order(self) -> ViewState:
        """The order after this one."""
        orders = list(Order)
        following = orders[(orders.index(self.order) + 1) % len(orders)]
        return replace(self, order=following)

    def with_next_grouping(self) -> ViewState:
        """The grouping after this one."""
        ways = list(Grouping)
        following = ways[(ways.index(self.grouping) + 1) % len(ways)]
        return replace(self, grouping=following, opened=frozenset())

    def with_filter(self, words: str) -> ViewState:
        """Only rows with these words."""
        return replace(self, filter=words)

    @property
    def has_rows_to_enter(self) -> bool:
        """Whether Enter does something with a row; else it is text to scroll."""
        return not self.read and self.pane in READABLE

    def entered(self, key: str) -> ViewState:
        """Enter on this row: a node is opened or closed, everything else is read."""
        if not key or not self.has_rows_to_enter:
            return self
        if key.startswith(NODE_KEY):
            return replace(self, opened=self.opened ^ {key})
        return replace(self, read=key)

    def left(self) -> ViewState:
        """Escape: one thing after the other is let go of."""
        if self.read:
            return replace(self, read="")
        if self.filter:
            return replace(self, filter="")
        if self.opened:
            return replace(self, opened=frozenset())
        return self.at(Pane.RANKS)

    def paused_or_not(self) -> ViewState:
        """The picture stands still, or moves again."""
        return replace(self, is_paused=not self.is_paused)


# Which row is chosen, and which rows are seen. Pure.


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
