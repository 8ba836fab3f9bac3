"""The leader's verdicts on checkpoints: what proved good, and what the job went back behind.

They are written beside the files first, which are the truth, and then into the ledger. When is
judged in `decisions.probation` and `decisions.choosing`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from holdfast_sidecar.checkpoint.writer.client import Unanswered
from holdfast_sidecar.checkpoint_orders import Storage
from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.policy import checkpoint_choice
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.checkpoint import LedgerEntry
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import Candidate, Plan
from holdfast_sidecar.stopwatch import Stopwatch
from holdfast_sidecar.store.protocol import Lease, Section, Store

log = logging.getLogger(__name__)

AGAIN_AFTER_S = 30.0
"""Storage that could not take a verdict is asked again: nothing waits for it then."""


class VerdictKeeping:
    """What a leading sidecar does about verdicts; asked once per exchange."""

    def __init__(self, store: Store, settings: CheckpointSettings, storage: Storage) -> None:
        self._store = store
        self._settings = settings
        self._storage = storage
        self._watch = Stopwatch()
        self._on_trial: set[str] = set()
        self._not_before = float("-inf")
        self._poisoning: dict[str, str] = {}
        self._refused: dict[str, str] = {}

    def keep(self, lease: Lease, cluster: Cluster, plan: Plan, now: float) -> None:
        """Follow the probation of what is complete. `now` is monotonic seconds."""
        self._say_again(lease, cluster, now)
        trials = checkpoint_choice.on_trial(cluster, plan)
        self._forget({entry.identifier for entry in trials}, now)
        for entry in trials:
            state = checkpoint_choice.state_of_trial(entry, cluster, plan)
            well_for_s = self._watch.elapsed(entry.identifier, state, now)
            ranks = cluster.ranks(plan)
            if state and checkpoint_choice.has_passed(entry, ranks, well_for_s, self._settings):
                self._call_good(lease, cluster, entry, now)

    def abandon(
        self, lease: Lease, cluster: Cluster, candidates: Sequence[Candidate], reason: str
    ) -> bool:
        """Have it written down that the job goes back behind these; whether that is under way.

        A restart does not wait for storage that takes no more: then only the plan says it.
        """
        for candidate in candidates:
            if candidate.identifier not in self._refused:
                self._poisoning[candidate.identifier] = reason
        self.follow(lease, cluster)
        return bool(self._poisoning)

    def follow(self, lease: Lease, cluster: Cluster) -> None:
        """Hear what became of verdicts that are being written."""
        for identifier, reason in list(self._poisoning.items()):
            try:
                entry = self._storage.give_verdict(identifier, "poisoned", reason)
            except Unanswered:
                continue
            except OSError as error:
                log.warning("can't note what speaks against checkpoint %s: %s", identifier, error)
                self._refused[identifier] = reason
                entry = None
            del self._poisoning[identifier]
            self._enter(lease, cluster, entry)

    def _say_again(self, lease: Lease, cluster: Cluster, now: float) -> None:
        """Without the verdict, a restart before the next checkpoint would come back to it."""
        for identifier, reason in list(self._refused.items()):
            if now < self._not_before:
                return
            try:
                entry = self._storage.give_verdict(identifier, "poisoned", reason)
            except Unanswered:
                continue
            except OSError:
                self._not_before = now + AGAIN_AFTER_S
                return
            del self._refused[identifier]
            self._enter(lease, cluster, entry)

    def _call_good(self, lease: Lease, cluster: Cluster, entry: LedgerEntry, now: float) -> None:
        if now < self._not_before:
            return
        after_s, after_steps = self._settings.good_after_s, self._settings.good_after_steps
        reason = f"the job ran on from it for {after_s:g} s and {after_steps} steps, and was well"
        try:
            written = self._storage.give_verdict(entry.identifier, "good", reason)
        except Unanswered:
            return
        except OSError as error:
            log.warning("can't note that checkpoint %s is good: %s", entry.identifier, error)
            self._not_before = now + AGAIN_AFTER_S
            return
        self._enter(lease, cluster, written)
        log.info("checkpoint %s of step %d is good", entry.identifier, entry.step)

    def _enter(self, lease: Lease, cluster: Cluster, entry: LedgerEntry | None) -> None:
        if entry is None:
            return  # removed meanwhile
        known = cluster.ledger_texts.get(entry.identifier)
        self._store.order(lease, Section.LEDGER, entry.identifier, encode(entry), known)

    def _forget(self, on_trial: set[str], now: float) -> None:
        for name in self._on_trial - on_trial:
            self._watch.elapsed(name, "", now)
        self._on_trial = on_trial
