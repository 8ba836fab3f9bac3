"""What became of a link since this sidecar started: whether it was ever up, is gone, came back.

The same for RDMA ports and for network interfaces. Times are monotonic seconds.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

REMEMBERED_S = 12 * 3600.0
"""Flaps within half a day belong together: what loosens a plug (heat, vibration) goes by the
day's rhythm. gpud's span."""

MOST_FLAPS = 32
"""More are not told from each other."""


@dataclass(frozen=True)
class LinkLook:
    """One link, looked at once. None: it did not say."""

    is_up: bool | None
    downs: int | None = None
    """How often it went down, by the kernel's count: tells of flaps between two looks."""
    rate_bytes_per_s: float | None = None
    kind: str = ""
    """Links of one kind (the same board) are compared with each other; empty: it has no like."""


@dataclass(frozen=True)
class LinkStory:
    """One link's past."""

    name: str
    look: LinkLook = LinkLook(None)
    was_up: bool = False
    down_since_s: float | None = None
    is_there: bool = True
    """False: its device is gone from the machine."""
    flaps_s: tuple[float, ...] = ()
    """When it came back, each time."""
    best_rate: float = 0.0
    rate: float = 0.0
    """The last one told while it was up, bytes per second."""
    rate_since_s: float = 0.0

    def seen(self, look: LinkLook, now_s: float) -> LinkStory:
        """The story with one more look."""
        if look == self.look and self._is_steady and look.rate_bytes_per_s in (self.rate, None):
            return self
        known = tuple(at_s for at_s in self.flaps_s if at_s >= now_s - REMEMBERED_S)
        told = dataclasses.replace(self, look=self._kept(look), is_there=True, flaps_s=known)
        if look.is_up is None:
            return told
        if not look.is_up:
            since_s = now_s if self.down_since_s is None else self.down_since_s
            return dataclasses.replace(told, down_since_s=since_s if self.was_up else None)
        came_back = self.was_up and (self.down_since_s is not None or self._fell_meanwhile(look))
        flaps = (*known, now_s)[-MOST_FLAPS:] if came_back else known
        risen = dataclasses.replace(told, was_up=True, down_since_s=None, flaps_s=flaps)
        return risen._running_at(look.rate_bytes_per_s, now_s)

    @property
    def _is_steady(self) -> bool:
        """Up as ever, and nothing of its past is to be forgotten."""
        is_up = self.is_there and self.look.is_up is True and self.was_up
        return is_up and self.down_since_s is None and not self.flaps_s

    def vanished(self, now_s: float) -> LinkStory:
        """Its device is not listed any more: as good as down."""
        return dataclasses.replace(self.seen(LinkLook(is_up=False), now_s), is_there=False)

    def _kept(self, look: LinkLook) -> LinkLook:
        """The look; what it leaves out is as it was (a file that can't be read just now)."""
        return LinkLook(
            look.is_up if look.is_up is not None else self.look.is_up,
            look.downs if look.downs is not None else self.look.downs,
            look.rate_bytes_per_s,
            look.kind or self.look.kind,
        )

    def _fell_meanwhile(self, look: LinkLook) -> bool:
        """By a counter that grew. One that is lower was set back, and says nothing."""
        before = self.look.downs
        return look.downs is not None and before is not None and look.downs > before

    def _running_at(self, rate: float | None, now_s: float) -> LinkStory:
        if not rate or rate == self.rate:
            return self
        best = max(self.best_rate, rate)
        return dataclasses.replace(self, rate=rate, rate_since_s=now_s, best_rate=best)
