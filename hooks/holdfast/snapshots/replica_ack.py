"""Waiting until another node has a copy too, where that was asked for (peer copies in step)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.contract.page import OrderKind
from holdfast.recording.interface import Recording

log = logging.getLogger(__name__)

LOOK_S = 0.0002
"""The page is memory: a look costs nothing, and a copy between nodes takes milliseconds."""

ASK_S = 0.02
"""Copies are there sooner as a rule; a question to the store costs a tenth of a millisecond."""


@dataclass
class Partner:
    """The node that copies this rank's snapshots, as the sidecar tells of it in the page."""

    recording: Recording
    timeout_s: float
    """A partner silent for so long is stuck, and training does not wait for it a second time."""
    now_s: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep
    _late_since: int | None = None
    """First step that it did not confirm in time."""

    def await_confirmed(self, step: int, is_void: Callable[[], bool]) -> bool:
        """Wait until that step is there; False: it is not, and waiting has ended.

        `is_void`: whether some rank left the step out. A node copies what all its ranks have, so
        that one would be waited for in vain.
        """
        start_s = asked_s = self.now_s()
        end_s = start_s + self.timeout_s
        while not self._is_confirmed(step):
            if self.now_s() >= asked_s + max(ASK_S, (asked_s - start_s) / 8):
                asked_s = self.now_s()
                if is_void():
                    return False
            if self._late_since is not None and not self._is_confirmed(self._late_since):
                return False
            order = self.recording.order(OrderKind.CONFIRMED)
            if order is not None and order.is_withdrawn:
                return False
            if self.now_s() >= end_s:
                log.warning(
                    "holdfast: step %d is on no other node after %g s; training goes on "
                    "without waiting until one has it",
                    step,
                    self.timeout_s,
                )
                self._late_since = step
                return False
            self.pause(LOOK_S)
        self._late_since = None
        return True

    def _is_confirmed(self, step: int) -> bool:
        order = self.recording.order(OrderKind.CONFIRMED)
        return order is not None and not order.is_withdrawn and order.step >= step
