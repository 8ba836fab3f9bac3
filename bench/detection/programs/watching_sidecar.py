"""A sidecar's whole loop, as `holdfast sidecar` runs it; what it tells its coordinator is printed.

There is no store behind it, so nothing is decided: a line says when which rank was seen, and when
its crash was found.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from pathlib import Path

from holdfast_sidecar.config.paths import Paths
from holdfast_sidecar.config.settings import PathSettings, Settings
from holdfast_sidecar.export.state import TickState
from holdfast_sidecar.records.findings import Kind
from holdfast_sidecar.startup import Site
from holdfast_sidecar.store.orders import LocalState, Orders
from holdfast_sidecar.wiring import assemble, open_storage_client


class TellingTime:
    """In the coordinator's place: takes the time at which a state is handed over."""

    def __init__(self) -> None:
        self.changed = threading.Event()
        self._said: set[tuple[str, int]] = set()

    def start(self) -> None:
        """Nothing to exchange with."""

    def stop(self) -> None:
        """Nothing to end."""

    def orders(self) -> Orders:
        """Nothing was agreed."""
        return Orders()

    def tell(self, state: LocalState) -> None:
        """Say once of each attempt that its rank is seen, and that it crashed."""
        now_ns = time.monotonic_ns()
        if any(rank.alive for rank in state.ranks):
            self._say("seen", state.attempt, now_ns)
        for finding in state.findings:
            if finding.kind is Kind.CRASH and finding.acts:
                self._say("crashed", state.attempt, now_ns, finding.evidence)

    def _say(self, what: str, attempt: int, at_ns: int, evidence: list[str] | None = None) -> None:
        if (what, attempt) not in self._said:
            self._said.add((what, attempt))
            line = {"what": what, "attempt": attempt, "at_ns": at_ns, "evidence": evidence or []}
            print(json.dumps(line), flush=True)


class Silent:
    """In the metrics page's place."""

    def tell(self, picture: TickState) -> None:
        """Nobody asks."""


def main(pages: str, state: str) -> None:
    """Watch the pages in this directory until killed."""
    logging.basicConfig(level=logging.INFO)
    settings = Settings(paths=PathSettings(shm_dir=pages, state_dir=state))
    site = Site("bench", "a", Paths(shm=Path(pages), state=Path(state)), settings)
    assemble(site, TellingTime(), open_storage_client(site), Silent(), "").run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
