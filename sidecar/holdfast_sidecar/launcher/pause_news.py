"""What people at the console hear of pauses: that one begins, until when and why, and its end."""

from __future__ import annotations

import time
from dataclasses import dataclass

from holdfast_sidecar.records.plan import Pause, Plan


@dataclass
class PauseNews:
    """Tells each pause once, and once that there is none any more."""

    _told: Pause | None = None

    def line(self, plan: Plan | None) -> str:
        """What there is to say of the newest plan; mostly nothing."""
        if plan is None or plan.pause == self._told:
            return ""
        before, self._told = self._told, plan.pause
        if plan.pause is None:
            return "the job is not paused any more" if before is not None else ""
        until = time.strftime("%H:%M:%S", time.localtime(plan.pause.until_unix_s))
        why = f": {plan.pause.reason}" if plan.pause.reason else ""
        return f"paused by {plan.pause.by} until {until}, nothing is done about faults{why}"
