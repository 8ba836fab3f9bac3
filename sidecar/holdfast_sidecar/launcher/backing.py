"""When warm interpreters are started for the next attempt, and what they import: once per attempt.

Not before every rank has stepped: until then they would compete with the ranks' own start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from holdfast.page import Flag
from holdfast_sidecar.launcher.rank_pages import has_flag, has_stepped, read_words
from holdfast_sidecar.launcher.standby import Standby

LOOK_EVERY_S = 0.5
"""How often the ranks' pages are looked at until all have stepped."""


class Backing:
    """Watches over one attempt's first steps."""

    def __init__(
        self,
        standby: Standby,
        pages: Sequence[Path],
        tell: Callable[[tuple[str, ...]], None] = lambda modules: None,
    ) -> None:
        self._standby = standby
        self._pages = pages
        self._tell = tell
        self._looked_at = float("-inf")
        self._is_settled = False

    def look(self, now: float) -> None:
        """Start the interpreters if it is time. `now` is monotonic seconds."""
        if self._is_settled or now - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = now
        words = [read_words(page) for page in self._pages]
        stepped = [found for found in words if found is not None and has_stepped(found)]
        if len(stepped) == len(self._pages):
            self._is_settled = True
            modules = modules_to_warm(stepped)
            self._tell(modules)
            if modules:
                self._standby.warm_up(modules)


def modules_to_warm(words: Sequence[tuple[int, ...]]) -> tuple[str, ...]:
    """What these ranks had imported and is slow to import; empty when they must start cold."""
    if any(has_flag(found, Flag.NEEDS_COLD_START) for found in words):
        return ()
    # DDP and AdamW import it on first use: another second of CPU time beside torch's own.
    uses_dynamo = any(has_flag(found, Flag.DYNAMO_IMPORTED) for found in words)
    return ("torch", "torch._dynamo") if uses_dynamo else ("torch",)
