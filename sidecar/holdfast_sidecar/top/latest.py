"""What is known of a job: its newest view, and since when nobody tells a newer one. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from holdfast_sidecar.export.live.view import LiveView


@dataclass(frozen=True)
class Latest:
    """The newest view. Times are this process' monotonic clock."""

    view: LiveView | None = None
    told_by: str = ""
    """Who was asked, in words."""
    away_since_s: float | None = None
    """Since when there is no answer; None: there is one."""
    why: str = ""
    """Why there is none."""

    def answered(self, view: LiveView, told_by: str) -> Latest:
        """There is a newer one."""
        return Latest(view, told_by)

    def unanswered(self, why: str, now_s: float) -> Latest:
        """Nobody answered; what was known is kept."""
        since_s = now_s if self.away_since_s is None else self.away_since_s
        return replace(self, away_since_s=since_s, why=why)

    def silence_s(self, now_s: float) -> float | None:
        """How long there has been no answer; None: there is one."""
        return None if self.away_since_s is None else max(now_s - self.away_since_s, 0.0)
