"""Whether a Prometheus that comes by has yet to hear how the run ended."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from holdfast_sidecar.picture import Picture
from holdfast_sidecar.records.plan import TERMINAL

EXPECTED_S = 70.0
"""Who came within this time comes again: nobody scrapes less often than once a minute, as
Prometheus forgets a series after five."""


@dataclass
class LastWords:
    """Hears of every scrape, from the server's threads; is asked by the loop. Times are monotonic.

    A run that ends leaves within a second, and Prometheus comes every fifteen: without waiting for
    it, a run that ended well and one whose machines all died would look the same. Of two that watch
    the same run each has to hear it.
    """

    _scraped_s: dict[str, float] = field(default_factory=dict)
    """Caller -> when it came last without having heard of the end."""
    _have_heard: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    """Two may come at the same moment."""

    def told(self, picture: Picture | None, now_s: float, caller: str) -> None:
        """This picture was just told to a Prometheus. caller: its address."""
        with self._lock:
            if picture is not None and tells_the_end(picture):
                self._have_heard.add(caller)
            seen = {**self._scraped_s, caller: now_s}
            # Replaced whole: the loop may be reading it.
            self._scraped_s = {
                who: at_s
                for who, at_s in seen.items()
                if who not in self._have_heard and _is_expected(at_s, now_s)
            }

    def is_awaited(self, now_s: float) -> bool:
        """Whether one is expected that has not heard of the end."""
        return any(_is_expected(at_s, now_s) for at_s in self._scraped_s.values())


def _is_expected(scraped_s: float, now_s: float) -> bool:
    return now_s - scraped_s < EXPECTED_S


def tells_the_end(picture: Picture) -> bool:
    """Whether the run is over, and this sidecar is the one that tells of it; or it tells that its
    launcher was told to end."""
    plan = picture.orders.plan
    is_over = plan is not None and plan.state in TERMINAL
    return picture.is_told_to_end or (picture.orders.is_leader and is_over)
