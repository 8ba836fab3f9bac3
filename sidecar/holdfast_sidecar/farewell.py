"""How a sidecar outlives its launcher: it reports, clears up, and leaves after a grace."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from holdfast.identity import ProcessIdentity
from holdfast.owned import owned_file
from holdfast.removing import unlink
from holdfast_sidecar.config.paths import Places
from holdfast_sidecar.probes.launcher import LauncherWatch
from holdfast_sidecar.ranks.ending import (
    ActionRunner,
    end_leftovers,
    find_leftovers,
    has_new_owner,
    read_statuses,
    remove_shared_memory,
    unowned,
)
from holdfast_sidecar.store.embedded import remove_files

logger = logging.getLogger(__name__)


@dataclass
class Farewell:
    """Watches the launcher and knows when it is time to go."""

    launcher: LauncherWatch
    places: Places
    grace_s: float
    runner: ActionRunner = field(default_factory=ActionRunner)
    _gone_s: float | None = None
    has_successor: bool = False
    """A new launcher of this job runs on this node; it has a sidecar of its own."""

    def watch(self, now_s: float) -> bool:
        """Whether the launcher lives (or there is none to watch)."""
        if self.launcher.is_alive():
            return True
        if self._gone_s is None:
            logger.warning("launcher %d is gone; leaving in %g s", self.launcher.pid, self.grace_s)
            self._gone_s = now_s
        # A new launcher of this job on this node starts a sidecar of its own.
        self.has_successor = has_new_owner(self.places.lock)
        return False

    def is_due(self, now_s: float) -> bool:
        """Whether this sidecar has nothing left to do."""
        if self._gone_s is None:
            return False
        return self.has_successor or now_s - self._gone_s >= self.grace_s

    def sweep(self, dead_ranks: Sequence[ProcessIdentity]) -> None:
        """End what dead ranks left running."""
        self.runner.run("end_leftovers", partial(_end_leftovers, dead_ranks))

    def say(self, dead_ranks: Sequence[ProcessIdentity]) -> None:
        """Clear up for good. A launcher that lives clears up by itself."""
        if self.launcher.is_alive() or self.has_successor:
            return
        self.sweep(dead_ranks)
        self.runner.run("remove_server_files", partial(_remove_server_files, self.places))
        self.runner.run(
            "remove_shared_memory",
            partial(remove_shared_memory, self.places.shm, self.places.lock),
        )


def _end_leftovers(dead_ranks: Sequence[ProcessIdentity]) -> bool:
    return bool(dead_ranks) and end_leftovers(find_leftovers(read_statuses(), dead_ranks))


def _remove_server_files(places: Places) -> bool:
    """A server of the launcher's own died with it; its record would lead nowhere."""
    with unowned(places.lock) as is_unowned:
        if not is_unowned:
            return False
        if not (remove_files(places.local_server) or remove_files(places.server)):
            return False
        unlink(owned_file(places.server_record), missing_ok=True)
    return True
