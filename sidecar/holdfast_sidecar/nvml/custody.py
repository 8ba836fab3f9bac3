"""When a child that asks NVML is started, ended and given up. Pure: time is an argument.

A child that hangs in the kernel can't be ended. It gets at most one replacement, and the driver is
left alone for longer and longer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

START_S = 30.0
"""A child that has not answered yet is left alone this long: where nothing keeps the driver loaded
the first to come waits until it has set up every GPU, two or three seconds each."""

PAUSE_S = 1.0
"""Before the first replacement: a driver that was reloaded is back after about that."""

PAUSE_MOST_S = 300.0
"""Doubled up to here. Whatever hangs then needs a reset or a reboot, which takes minutes; and each
attempt may leave another process in the kernel."""

SOUND_S = 60.0
"""One that answered this long is no failure when it ends: the next one comes after a second."""

ABSENT_PAUSE_S = 60.0
"""Without a driver: somebody may load one. A look costs 40 ms of CPU."""

ALIVE_MOST = 2
"""Of a kind, the stuck ones included: more would only hang in the same lock."""

QUIET_S = 1.0
"""Since the first look that heard nothing. A sidecar that slept, and its child with it, hears
nothing at first; after this it would."""

STUCK_S = 5.0
"""A process that a SIGKILL has not ended by then hangs in the kernel. One that does not is gone
within a few milliseconds."""


class Deed(str, Enum):
    """What is to be done now."""

    NOTHING = "nothing"
    START = "start"
    END = "end"


@dataclass(frozen=True)
class Custody:
    """How one kind of child stands. Times are CLOCK_MONOTONIC seconds."""

    patience_s: float
    """Without a sign of life for longer than this, it is silent."""
    started_s: float | None = None
    """Of the child that is asked; None: there is none."""
    heard_s: float | None = None
    """The last sign of life of that one."""
    heard_first_s: float | None = None
    quiet_s: float | None = None
    """When it was first looked without hearing anything more of it."""
    due_s: float = float("-inf")
    """None is started before."""
    failures: int = 0
    """Children in a row that ended badly, or had to be ended."""
    stuck: int = 0
    """Ended, and not gone: they hang in the kernel."""
    silent_since_s: float | None = None
    """Since when the driver has not answered, by whatever child."""

    def looked(self, now_s: float, is_heard: bool) -> Custody:
        """The same, having looked: whoever has been silent for too long is so from here on."""
        if is_heard:
            return self._heard(now_s)
        quiet = self if self.quiet_s is not None else replace(self, quiet_s=now_s)
        if quiet.silent_since_s is None and quiet._is_silent(now_s):
            return replace(quiet, silent_since_s=quiet._last_sign_s)
        return quiet

    def deed(self, now_s: float) -> Deed:
        """What is to be done with the child, or the lack of one."""
        if self.started_s is None:
            may_start = now_s >= self.due_s and self.stuck < ALIVE_MOST
            return Deed.START if may_start else Deed.NOTHING
        is_starting = self.heard_s is None and now_s - self.started_s <= START_S
        return Deed.END if self._is_silent(now_s) and not is_starting else Deed.NOTHING

    def started(self, now_s: float) -> Custody:
        """One was started."""
        return replace(self, started_s=now_s, heard_first_s=None, heard_s=None, quiet_s=None)

    def ended(self, now_s: float, is_gone: bool) -> Custody:
        """It ended by itself. One that can't be waited for is stuck on its way out."""
        failures = 1 if self._was_sound(now_s) else self.failures + 1
        return self._left(failures, now_s + pause_s(failures), is_gone)

    def absent(self, now_s: float, is_gone: bool) -> Custody:
        """It ended since there is no driver, which is no failure."""
        return self._left(0, now_s + ABSENT_PAUSE_S, is_gone)

    def killed(self, now_s: float) -> Custody:
        """It got a SIGKILL; it is stuck until it is seen to be gone."""
        return self.ended(now_s, is_gone=False)

    def buried(self, now_s: float, killed_s: float) -> Custody:
        """One that was killed then is gone. Had it hung in the kernel, the driver lives again."""
        due_s = min(self.due_s, now_s) if now_s - killed_s >= STUCK_S else self.due_s
        return replace(self, stuck=self.stuck - 1, due_s=due_s)

    @property
    def _last_sign_s(self) -> float | None:
        return self.started_s if self.heard_s is None else self.heard_s

    def _heard(self, now_s: float) -> Custody:
        first_s = now_s if self.heard_first_s is None else self.heard_first_s
        heard = replace(self, heard_first_s=first_s, heard_s=now_s, quiet_s=None)
        return replace(heard, silent_since_s=None)

    def _left(self, failures: int, due_s: float, is_gone: bool) -> Custody:
        stuck = self.stuck + (not is_gone)
        return replace(self, started_s=None, failures=failures, due_s=due_s, stuck=stuck)

    def _is_silent(self, now_s: float) -> bool:
        if self.started_s is None or self._last_sign_s is None or self.quiet_s is None:
            return False
        return now_s - self._last_sign_s > self.patience_s and now_s - self.quiet_s >= QUIET_S

    def _was_sound(self, now_s: float) -> bool:
        return self.heard_first_s is not None and now_s - self.heard_first_s >= SOUND_S


def pause_s(failures: int) -> float:
    """Before the next child, after so many that failed in a row."""
    return min(PAUSE_S * 2.0 ** min(failures - 1, 30), PAUSE_MOST_S)
