"""How long packets took to other nodes' sidecars and back, and what those answered.

None and absence mean that it was not said, which is never the same as 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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
