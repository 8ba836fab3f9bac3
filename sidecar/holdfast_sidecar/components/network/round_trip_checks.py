"""How long packets took to other nodes' sidecars and back, and what those answered.

None and absence mean that it was not said, which is never the same as 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median

from holdfast_sidecar.records.findings import Finding, Kind, Moment


@dataclass(frozen=True)
class Trips:
    """To one other node, over one window."""

    sent: int
    lost: int
    median_s: float | None
    """Of those that came back; None: none did."""


@dataclass(frozen=True)
class RoundTrips:
    """The newest windows, oldest first: by other node what became of its packets."""

    windows: tuple[Mapping[str, Trips], ...] = ()
    ever_answered: frozenset[str] = frozenset()
    """Nodes that answered at some time in this attempt: the others may be behind a firewall."""
    also_slow_for: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Node -> others that find it slow, as they report."""


# A slow way to another node: its round trips stand out from the others', or do not come back.
#
# Seen in three windows of half a minute, never in one. From one side alone it can't be told whose
# link it is; where several find the same node slow, it is that node's.

WINDOWS = 3
"""A minute and a half: a checkpoint's upload that fills a link may well take one."""

FEWEST_OTHERS = 3
"""To know what is usual."""

TIMES = 3.0
DEVIATIONS = 5 * 1.4826
"""Of the median absolute deviation, which is 1.4826 to the standard deviation of a normal one."""
LEAST_S = 0.0002
"""More than what one switch more takes (some us), or another rack; a queue that fills takes it."""

LOST_RATIO = 0.5
"""A link that loses half of single packets carries no collective; congestion loses a few."""

SURE_OF_ONE_SIDE = 0.5
SURE_OF_SEVERAL = 0.8


def find_slow_peers(trips: RoundTrips | None, moment: Moment) -> Iterator[Finding]:
    """Nodes that are reached slowly, or badly, from here."""
    if trips is None or len(trips.windows) < WINDOWS:
        return
    windows = trips.windows[-WINDOWS:]
    for peer in sorted(set.intersection(*(set(window) for window in windows))):
        if all(_is_slow(peer, window) for window in windows):
            yield _finding(peer, _slowness(peer, windows[-1]), trips, moment)
        elif peer in trips.ever_answered and all(_is_lossy(window[peer]) for window in windows):
            lost, sent = windows[-1][peer].lost, windows[-1][peer].sent
            yield _finding(peer, f"{lost} of {sent} packets did not come back", trips, moment)


def _is_slow(peer: str, window: Mapping[str, Trips]) -> bool:
    own, others = window[peer].median_s, _others(peer, window)
    if own is None or len(others) < FEWEST_OTHERS:
        return False
    usual = median(others)
    deviation = median(abs(one - usual) for one in others)
    return own > max(TIMES * usual, usual + DEVIATIONS * deviation, usual + LEAST_S)


def _is_lossy(trips: Trips) -> bool:
    return trips.sent > 0 and trips.lost >= LOST_RATIO * trips.sent


def _others(peer: str, window: Mapping[str, Trips]) -> list[float]:
    return [
        trips.median_s
        for name, trips in window.items()
        if name != peer and trips.median_s is not None
    ]


def _slowness(peer: str, window: Mapping[str, Trips]) -> str:
    own, usual = window[peer].median_s or 0.0, median(_others(peer, window))
    return f"a packet takes {own * 1e3:.2f} ms to it and back, {usual * 1e3:.2f} ms to others"


def _finding(peer: str, text: str, trips: RoundTrips, moment: Moment) -> Finding:
    evidence = [f"node {peer}: {text}"]
    others = trips.also_slow_for.get(peer, ())
    if others:
        evidence.append(f"nodes {', '.join(others)} find the same: the trouble is on its side")
    else:
        evidence.append("nobody else finds so: it may be either side's link")
    sure = SURE_OF_SEVERAL if others else SURE_OF_ONE_SIDE
    return Finding(
        Kind.PEER_SLOW, moment.node, moment.now_unix_s, sure, evidence=evidence, what=peer
    )
