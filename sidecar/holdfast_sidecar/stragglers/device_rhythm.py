"""How often a rank's steps are timed by its device: in blocks shorter than that some have no time.

Pure. Hooks time as many steps as keep the price small, each rank by its own price.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.page import Record

MOST = 64
"""The hooks time a step in so many at least; more apart they were kept from it."""


@dataclass
class DeviceRhythm:
    """One rank's."""

    _newest: int = -1
    """The last step that was timed; -1: none was."""
    _gaps: deque[int] = field(default_factory=lambda: deque(maxlen=2))

    def hear(self, records: Iterable[Record]) -> None:
        """Some more of its records."""
        for record in records:
            if record.device_lag:
                step = record.step - record.device_lag
                if 0 <= self._newest < step:
                    self._gaps.append(step - self._newest)
                self._newest = step

    @property
    def is_known(self) -> bool:
        """Whether its steps are timed so at all."""
        return self._newest >= 0

    @property
    def span(self) -> int:
        """Steps of a block that has a time in it, a power of two. One time that was missed makes no
        block longer."""
        if not self._gaps:
            return 1
        return 1 << (min(MOST, *self._gaps) - 1).bit_length()
