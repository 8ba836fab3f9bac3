"""Whether a Prometheus that comes by has yet to hear how the run ended."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_sidecar.picture import Picture
from holdfast_sidecar.records.plan import TERMINAL

EXPECTED_S = 70.0
"""Who came within this time comes again: nobody scrapes less often than once a minute, as
Prometheus forgets a series after five."""


@dataclass
class LastWords:
    """Hears of every scrape, from the server's threads; is asked by the loop. Times are monotonic.

    A run that ends leaves within a second, and Prometheus comes every fifteen: without waiting for
    it, a run that ended well and one whose machines all died would look the same.
    """

    _scraped_s: float | None = None
    _is_heard: bool = False

    def told(self, picture: Picture | None, now_s: float) -> None:
        """This picture was just told to a Prometheus."""
        self._scraped_s = now_s
        self._is_heard = self._is_heard or (picture is not None and tells_the_end(picture))

    def is_awaited(self, now_s: float) -> bool:
        """Whether one is expected that has not heard of the end."""
        if self._is_heard or self._scraped_s is None:
            return False
        return now_s - self._scraped_s < EXPECTED_S


def tells_the_end(picture: Picture) -> bool:
    """Whether the run is over, and this sidecar is the one that tells of it."""
    plan = picture.orders.plan
    return picture.orders.is_leader and plan is not None and plan.state in TERMINAL
