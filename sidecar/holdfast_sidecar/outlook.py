"""What the next attempt would resume from, looked up while the job is well.

A restart from snapshots needs the checkpoints only as what comes after them, and shall not wait
until a writer has started and looked through storage for it.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast_sidecar.checkpoint.ledger import NothingResumable
from holdfast_sidecar.checkpoint.writer.client import Unanswered
from holdfast_sidecar.checkpoint_orders import Storage
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.plan import Candidate
from holdfast_sidecar.store.protocol import Lease

AGAIN_AFTER_S = 30.0
"""Storage that is away is left alone for so long: nothing depends on this look."""


class Outlook:
    """A list of candidates that holds for as long as the ledger says the same."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._ledger: tuple[int, Mapping[str, str]] | None = None
        self._looks = 0
        self._found: list[Candidate] | None = None
        self._not_before = float("-inf")

    def keep(self, lease: Lease, cluster: Cluster, now: float) -> None:
        """Look again if something has changed since. `now` is monotonic seconds."""
        if self._ledger != (ledger := (lease.epoch, cluster.ledger_texts)):
            # A question of its own: what was asked before may have been answered before, too.
            self._looks += 1
            self._ledger, self._found, self._not_before = ledger, None, float("-inf")
        if self._found is not None or now < self._not_before:
            return
        try:
            self._found = self._storage.candidates(f"ahead {lease.epoch} {self._looks}")
        except Unanswered:
            return
        except (OSError, NothingResumable):
            self._not_before = now + AGAIN_AFTER_S

    def candidates(self, lease: Lease, cluster: Cluster) -> list[Candidate] | None:
        """What was found, best first; None: nothing, or it may have changed since."""
        is_current = self._ledger == (lease.epoch, cluster.ledger_texts)
        return self._found if is_current else None
