"""Why a demonstration could not go on, and where to read more."""

from __future__ import annotations

from pathlib import Path

LINES = 15


class DemonstrationStopped(Exception):
    """One line; `log` holds what the failed part printed."""

    def __init__(self, reason: str, log: Path | None = None) -> None:
        super().__init__(reason)
        self.log = log

    @property
    def tail(self) -> list[str]:
        """The last lines of the log."""
        if self.log is None or not self.log.exists():
            return []
        return self.log.read_text(errors="replace").splitlines()[-LINES:]
