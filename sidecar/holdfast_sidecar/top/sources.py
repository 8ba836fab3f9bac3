"""Where views come from: whoever tells one. The sidecar is `sidecar_source`, a recording `replay`;
here is the one for tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from holdfast_sidecar.export.live.view import LiveView


class Away(Exception):
    """Nobody tells a view now; one line says why. It may pass."""


class Source(Protocol):
    """Whoever tells views."""

    @property
    def name(self) -> str:
        """Who it is, in words."""

    def read(self) -> LiveView:
        """The newest view, within seconds; Away where there is none."""


@dataclass
class MemorySource:
    """Tells these, one after the other, and the last one from then on."""

    told: Sequence[LiveView | Away] = field(default_factory=list)
    name: str = "memory"
    reads: int = 0

    def read(self) -> LiveView:
        """The next one, or the trouble that stands in its place."""
        if not self.told:
            raise Away("nothing is told")
        one = self.told[min(self.reads, len(self.told) - 1)]
        self.reads += 1
        if isinstance(one, Away):
            raise one
        return one
