"""Runs an action; the one place that catches, logs and counts an action's failure."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

logger = logging.getLogger(__name__)


@dataclass
class ActionRunner:
    """Counts what was done and what failed, by the action's name."""

    done: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    _last_errors: dict[str, str] = field(default_factory=dict)

    def run(self, name: str, action: Callable[[], bool]) -> bool:
        """Run it; answers whether it did something (`action` answers False: nothing to do)."""
        try:
            did = action()
        except Exception as error:
            self._failed(name, error)
            return False
        self._last_errors.pop(name, None)
        self.done[name] += int(did)
        return did

    def _failed(self, name: str, error: Exception) -> None:
        self.failed[name] += 1
        text = f"{type(error).__name__}: {error}"
        # The loop tries again at its next tick: an error that stays is logged once.
        if self._last_errors.get(name) != text:
            logger.error("action %s failed: %s", name, text)
            self._last_errors[name] = text
