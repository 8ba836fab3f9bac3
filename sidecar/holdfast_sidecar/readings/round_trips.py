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


@dataclass(frozen=True)
class Life:
    """What a sidecar that is asked whether its node lives answers."""

    has_launcher: bool
    ranks: int
    """Of this attempt that live there."""
    step: int
    """Steps that all of them completed; -1: not known."""


NOTHING_KNOWN = Life(has_launcher=True, ranks=0, step=-1)


@dataclass(frozen=True)
class LifeSign:
    """What round trips say of another node of the attempt."""

    answered_s: float | None = None
    """When the newest question was sent that it answered, monotonic; None: it never answered, so
    that its silence means nothing."""
    unanswered: int = 0
    """Rounds since in which it was asked directly and through others, and nothing came back."""
    life: Life = NOTHING_KNOWN
    since_step_s: float = 0.0
    """Since when it has told the same step, monotonic."""
