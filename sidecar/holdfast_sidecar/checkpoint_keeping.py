"""The leader's checkpoints: armed when due or asked for, followed, entered when complete.

What to arm and what became of an order is judged in `decisions.checkpointing`.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from holdfast_sidecar.coordination.keys import CURRENT, Section
from holdfast_sidecar.coordination.reports import (
    Candidate,
    CheckpointOrder,
    LedgerEntry,
    Plan,
    SavedPart,
    encode,
)
from holdfast_sidecar.coordination.store import Lease, Store
from holdfast_sidecar.decisions import checkpointing
from holdfast_sidecar.decisions.cluster import Cluster
from holdfast_sidecar.decisions.watching import newcomers
from holdfast_sidecar.settings import Settings
from holdfast_sidecar.stopwatch import Stopwatch

log = logging.getLogger(__name__)

REARMINGS = 3
"""A person's request is tried again this often when the order came too late for some rank."""


class Storage(Protocol):
    """The checkpoint directory as the leader needs it."""

    def candidates(self) -> list[Candidate]:
        """Checkpoints to try to resume from, best first.

        Raises OSError when they can't be seen, NothingResumable when none of them is of use.
        """

    def path(self, step: int, identifier: str) -> str:
        """Where a checkpoint shall lie; empty when no directory is configured."""

    def entries(self) -> list[LedgerEntry]:
        """Every checkpoint that exists. Raises OSError."""

    def finish(self, order: CheckpointOrder, plan: Plan, parts: Sequence[SavedPart]) -> LedgerEntry:
        """Write the manifest: from then on the checkpoint exists. Raises OSError."""

    def settle(self, order: CheckpointOrder) -> LedgerEntry | None:
        """Its entry when the order of an ended attempt was sealed; None: it never will be.

        Raises OSError.
        """

    def tidy(self, entry: LedgerEntry, plan: Plan) -> None:
        """Remove what this checkpoint has made superfluous. Raises OSError."""

    def failed_to_load(self, identifier: str, attempt: int) -> LedgerEntry | None:
        """Note that ranks could not load it; the entry when that has made it poisoned."""


class CheckpointKeeping:
    """What a leading sidecar does about checkpoints; asked once per exchange of a running plan."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        storage: Storage,
        new_identifier: Callable[[], str],
    ) -> None:
        self._store = store
        self._settings = settings
        self._storage = storage
        self._new_identifier = new_identifier
        self._watch = Stopwatch()
        self._late_orders = 0
        self._noted_failures: set[tuple[str, int]] = set()
        self._rebuilt_under = -1

    def keep(self, lease: Lease, cluster: Cluster, plan: Plan, now: float) -> None:
        """Follow the armed order, or arm one. `now` is monotonic seconds."""
        if self._rebuilt_under != lease.epoch:
            self._rebuilt_under = lease.epoch
            self._rebuild_ledger(lease, cluster)
        self._note_failed_loads(lease, cluster, plan)
        order = cluster.checkpoint
        if order is not None and order.state == "armed":
            self._follow(lease, cluster, plan, order, now)
        else:
            self._consider(lease, cluster, plan, now)

    def settle(self, lease: Lease, cluster: Cluster) -> None:
        """Before another attempt is opened: what was under way is there, or never will be.

        Raises OSError when the storage does not say.
        """
        order = cluster.checkpoint
        if order is None or order.state != "armed":
            return
        entry = self._storage.settle(order)
        if entry is not None:
            self._store.order(lease, Section.LEDGER, entry.identifier, encode(entry), None)
        self._end(lease, cluster, order, "" if entry is not None else "the attempt ended")

    def _rebuild_ledger(self, lease: Lease, cluster: Cluster) -> None:
        """Make the ledger say what storage holds, no less and no more."""
        try:
            existing = {entry.identifier: encode(entry) for entry in self._storage.entries()}
        except OSError as error:
            log.warning("can't rebuild the ledger, storage is away: %s", error)
            return
        entered = cluster.ledger_texts
        for name in existing.keys() | entered.keys():
            if existing.get(name) != entered.get(name):
                self._store.order(
                    lease, Section.LEDGER, name, existing.get(name), entered.get(name)
                )

    def _follow(
        self, lease: Lease, cluster: Cluster, plan: Plan, order: CheckpointOrder, now: float
    ) -> None:
        armed_for = self._watch.elapsed("armed", order.identifier, now)
        verdict = checkpointing.judge(order, plan, cluster.nodes, cluster.ranks(plan), armed_for)
        if isinstance(verdict, checkpointing.Pending):
            self._lend(lease, cluster, order)
            return
        if isinstance(verdict, checkpointing.Complete):
            self._complete(lease, cluster, plan, order, verdict)
        else:
            self._end(lease, cluster, order, verdict.reason)

    def _end(self, lease: Lease, cluster: Cluster, order: CheckpointOrder, reason: str) -> bool:
        """Say what became of it (no reason: complete); False when this leader is deposed."""
        state = "void" if reason else "complete"
        ended = dataclasses.replace(order, state=state, reason=reason)
        self._late_orders = self._late_orders + 1 if ended.came_too_late else 0
        if not self._write_order(lease, ended, cluster.checkpoint_text):
            return False
        log.info("checkpoint %s at step %d: %s", order.identifier, order.step, state)
        again = 0 < self._late_orders <= REARMINGS
        if order.requested_by in cluster.request_texts and not again:
            text = cluster.request_texts[order.requested_by]
            self._store.order(lease, Section.REQUESTS, order.requested_by, None, text)
        return True

    def _lend(self, lease: Lease, cluster: Cluster, order: CheckpointOrder) -> None:
        """A scheduled checkpoint that is on its way answers whoever asks for one meanwhile."""
        asked = [r.identifier for r in cluster.requests.values() if r.kind == "checkpoint"]
        if asked and not order.requested_by:
            lent = dataclasses.replace(order, requested_by=asked[0])
            self._write_order(lease, lent, cluster.checkpoint_text)

    def _complete(
        self,
        lease: Lease,
        cluster: Cluster,
        plan: Plan,
        order: CheckpointOrder,
        complete: checkpointing.Complete,
    ) -> None:
        """Write the manifest, the ledger and the order; then remove what is superfluous."""
        try:
            entry = self._storage.finish(order, plan, complete.parts)
        except OSError as error:
            self._end(lease, cluster, order, f"the manifest could not be written: {error}")
            return
        self._store.order(lease, Section.LEDGER, entry.identifier, encode(entry), None)
        # The lease was in force just now: whoever lost it may remove nothing that others load.
        if not self._end(lease, cluster, order, ""):
            return
        try:
            self._storage.tidy(entry, plan)
        except OSError as error:  # the checkpoint exists all the same
            log.warning("can't tidy up after checkpoint %s: %s", entry.identifier, error)
        self._rebuilt_under = -1  # look again with the next reading

    def _consider(self, lease: Lease, cluster: Cluster, plan: Plan, now: float) -> None:
        ranks = cluster.ranks(plan)
        requests = [r for r in cluster.requests.values() if r.kind == "checkpoint"]
        asked_by = requests[0].identifier if requests else ""
        last_step = checkpointing.last_step(cluster.ledger.values(), plan, ranks)
        order = cluster.checkpoint
        key = f"{plan.attempt} {order.identifier if order is not None else ''}"
        since_last = self._watch.elapsed("schedule", key, now)
        if not asked_by and newcomers(cluster, plan) and not _saved_to_grow(order, plan):
            asked_by = "grow"
        due = checkpointing.is_due(self._settings.checkpoint, ranks, last_step, since_last)
        if not asked_by and not due:
            return
        obstacle = self._obstacle(plan, cluster)
        if obstacle and requests:
            waited = self._watch.elapsed("request", asked_by, now)
            if "three lines" in obstacle or waited > self._settings.checkpoint.deadline_s:
                self._refuse(lease, cluster, plan, asked_by, obstacle)
            return
        if not obstacle:
            self._arm(lease, cluster, plan, asked_by)

    def _obstacle(self, plan: Plan, cluster: Cluster) -> str:
        if not self._storage.path(0, ""):
            return "no checkpoint directory is configured (three lines need --checkpoint-dir)"
        return checkpointing.obstacle(plan, cluster.ranks(plan))

    def _arm(self, lease: Lease, cluster: Cluster, plan: Plan, asked_by: str) -> None:
        margin = checkpointing.margin_s(self._settings.sidecar, self._late_orders)
        on_grid = 0 if asked_by else self._settings.checkpoint.every_steps
        ranks = cluster.ranks(plan)
        step = checkpointing.step_to_arm(ranks, margin, on_grid)
        ahead_s = checkpointing.seconds_until(step, ranks)
        if on_grid and ahead_s > 2 * margin:
            return
        identifier = self._new_identifier()
        order = CheckpointOrder(
            identifier=identifier,
            attempt=plan.attempt,
            epoch=lease.epoch,
            step=step,
            path=self._storage.path(step, identifier),
            state="armed",
            deadline_s=ahead_s + self._settings.checkpoint.deadline_s,
            requested_by=asked_by,
            write_timeout_s=self._settings.checkpoint.write_timeout_s,
        )
        self._write_order(lease, order, cluster.checkpoint_text)

    def _refuse(
        self, lease: Lease, cluster: Cluster, plan: Plan, asked_by: str, reason: str
    ) -> None:
        order = CheckpointOrder(
            identifier=self._new_identifier(),
            attempt=plan.attempt,
            epoch=lease.epoch,
            step=0,
            path="",
            state="void",
            deadline_s=0.0,
            requested_by=asked_by,
            reason=reason,
        )
        self._write_order(lease, order, cluster.checkpoint_text)
        text = cluster.request_texts[asked_by]
        self._store.order(lease, Section.REQUESTS, asked_by, None, text)

    def _write_order(self, lease: Lease, order: CheckpointOrder, expected: str | None) -> bool:
        return self._store.order(lease, Section.CHECKPOINT, CURRENT, encode(order), expected)

    def _note_failed_loads(self, lease: Lease, cluster: Cluster, plan: Plan) -> None:
        for index, candidate in enumerate(plan.resume):
            failed = any(r.resume_failures >> index & 1 for r in cluster.ranks(plan).values())
            key = (candidate.identifier, plan.attempt)
            if not failed or key in self._noted_failures:
                continue
            self._noted_failures.add(key)
            try:
                entry = self._storage.failed_to_load(candidate.identifier, plan.attempt)
            except OSError as error:
                log.warning("can't note that %s did not load: %s", candidate.identifier, error)
                continue
            if entry is not None:
                known = cluster.ledger_texts.get(entry.identifier)
                self._store.order(lease, Section.LEDGER, entry.identifier, encode(entry), known)


def _saved_to_grow(order: CheckpointOrder | None, plan: Plan) -> bool:
    return (
        order is not None
        and order.attempt == plan.attempt
        and order.requested_by == "grow"
        and not order.came_too_late
    )
