"""What people at the console hear of who is slow: once, when it lasts, and once that it is over."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast_sidecar.records.slowness import SlowStanding
from holdfast_sidecar.slow_words import brief, who

Key = tuple[str, tuple[int, ...], str]


@dataclass
class SlownessNews:
    """Tells each that lasts once; what comes and goes is for `holdfast status`."""

    _told: dict[Key, str] = field(default_factory=dict)
    _attempt: int = -1

    def line(self, standing: SlowStanding | None) -> str:
        """What there is to say of the newest standing; mostly nothing."""
        if standing is None:
            return ""
        if standing.attempt != self._attempt:
            self._told, self._attempt = {}, standing.attempt
        slow = {one.key: one for one in standing.slow}
        over = [self._told.pop(key) for key in [*self._told] if key not in slow]
        new = [one for key, one in slow.items() if one.is_persistent and key not in self._told]
        self._told |= {one.key: who(one) for one in new}
        lines = [f"slow: {brief(one)} (holdfast explain --slow)" for one in new]
        lines += [f"not slow any more: {name}" for name in over]
        return "; ".join(lines)
