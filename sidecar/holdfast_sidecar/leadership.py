"""The leader's hands: carries out what `decisions` decided, and keeps the time for them.

Only stopwatches live here. Whatever must outlive this leader is in the store or beside the files.
"""

from __future__ import annotations

import dataclasses
import logging
import secrets
from collections.abc import Callable, Sequence
from typing import Protocol

from holdfast_sidecar.coordination.keys import Section
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
from holdfast_sidecar.decisions.beginning import is_fresh
from holdfast_sidecar.decisions.cluster import CURRENT, Cluster
from holdfast_sidecar.decisions.leader import decide
from holdfast_sidecar.decisions.outcome import TERMINAL, Circumstances, Write
from holdfast_sidecar.decisions.watching import newcomers
from holdfast_sidecar.settings import Settings

log = logging.getLogger(__name__)

SETTLING_HEARTBEATS = 5.0
"""After a change of leader or server, reports may take this many beats to be back."""

REARMINGS = 3
"""A person's request is tried again this often when the order came too late for some rank."""


class Storage(Protocol):
    """The checkpoint directory as the leader needs it."""

    def candidates(self) -> list[Candidate]:
        """Checkpoints to try to resume from, best first."""

    def path(self, step: int, identifier: str) -> str:
        """Where a checkpoint shall lie; empty when no directory is configured."""

    def finish(self, order: CheckpointOrder, plan: Plan, parts: Sequence[SavedPart]) -> LedgerEntry:
        """Write the manifest: from then on the checkpoint exists. Raises OSError."""

    def failed_to_load(self, identifier: str, attempt: int) -> LedgerEntry | None:
        """Note that ranks could not load it; the entry when that has made it poisoned."""


class Stopwatch:
    """How long something has been so: starts again when its key changes."""

    def __init__(self) -> None:
        self._started: dict[str, tuple[str, float]] = {}

    def elapsed(self, name: str, key: str, now: float) -> float:
        """Seconds since `name` first had this key. An empty key stops the watch."""
        if not key:
            self._started.pop(name, None)
            return 0.0
        if self._started.get(name, ("", 0.0))[0] != key:
            self._started[name] = (key, now)
        return now - self._started[name][1]


class Leadership:
    """What one sidecar does while it leads; asked once per exchange."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        storage: Storage,
        new_identifier: Callable[[], str] = lambda: secrets.token_hex(4),
    ) -> None:
        self._store = store
        self._settings = settings
        self._storage = storage
        self._new_identifier = new_identifier
        self._watch = Stopwatch()
        self._late_orders = 0
        self._forming = False
        self._noted_failures: set[tuple[str, int]] = set()
        self.waiting = ""

    def lead(
        self,
        lease: Lease,
        cluster: Cluster,
        server: str,
        plan_seen: Plan | None,
        now: float,
        now_unix_s: float,
    ) -> None:
        """Bring the job one step closer to what it should be. Raises StoreUnavailable."""
        plan = cluster.plan
        settled_for = self._watch.elapsed("settling", f"{lease.epoch} {server}", now)
        in_evidence = plan.incident if plan is not None and plan.state == "evidence" else ""
        circumstances = Circumstances(
            epoch=lease.epoch,
            now=now,
            now_unix_s=now_unix_s,
            settings=self._settings,
            plan_seen=plan_seen,
            settled=is_fresh(cluster, plan_seen)
            or settled_for >= SETTLING_HEARTBEATS * self._settings.sidecar.heartbeat_s,
            forming_for_s=self._watch.elapsed("forming", "yes" if self._forming else "", now),
            evidence_for_s=self._watch.elapsed("evidence", in_evidence, now),
            new_identifier=self._new_identifier(),
            majority=self._settings.redis.url.partition(":")[0].endswith("+sentinel"),
        )
        outcome = decide(cluster, circumstances)
        if outcome.needs_candidates:
            try:
                found = tuple(self._storage.candidates())
            except OSError as error:
                # To start from nothing for want of a look would throw the job's work away.
                self._wait(f"the checkpoints can't be read: {error}")
                return
            outcome = decide(cluster, dataclasses.replace(circumstances, candidates=found))
        self._forming = outcome.forming
        self._wait(outcome.waiting)
        if self._carry_out(lease, outcome.writes) and not self._changed_plan(outcome.writes):
            self._keep_checkpoints(lease, cluster, now)
        self._forget_requests(lease, cluster)

    def _wait(self, why: str) -> None:
        if why and why != self.waiting:
            log.info("waiting: %s", why)
        self.waiting = why

    def _carry_out(self, lease: Lease, writes: Sequence[Write]) -> bool:
        """Do the writes in order; a refused one means the world moved on: look again next time."""
        for write in writes:
            done = self._store.order(lease, write.section, write.field, write.value, write.expected)
            if not done:
                log.info("a write to %s was refused, looking again", write.section.value)
                return False
            if write.section is Section.PLAN:
                log.info("plan: %s", write.value)
        return True

    @staticmethod
    def _changed_plan(writes: Sequence[Write]) -> bool:
        return any(write.section is Section.PLAN for write in writes)

    def _forget_requests(self, lease: Lease, cluster: Cluster) -> None:
        plan = cluster.plan
        if plan is None or plan.state not in TERMINAL:
            return
        for name, text in cluster.request_texts.items():
            self._store.order(lease, Section.REQUESTS, name, None, text)

    def _keep_checkpoints(self, lease: Lease, cluster: Cluster, now: float) -> None:
        plan = cluster.plan
        if plan is None or plan.state != "running":
            return
        self._note_failed_loads(lease, cluster, plan)
        order = cluster.checkpoint
        if order is not None and order.state == "armed":
            self._follow(lease, cluster, plan, order, now)
        else:
            self._consider(lease, cluster, plan, now)

    def _follow(
        self, lease: Lease, cluster: Cluster, plan: Plan, order: CheckpointOrder, now: float
    ) -> None:
        armed_for = self._watch.elapsed("armed", order.identifier, now)
        verdict = checkpointing.judge(order, plan, cluster.nodes, cluster.ranks(plan), armed_for)
        if isinstance(verdict, checkpointing.Pending):
            return
        if isinstance(verdict, checkpointing.Complete):
            verdict = self._complete(lease, plan, order, verdict)
        self._late_orders = self._late_orders + 1 if verdict.reason.endswith("missed") else 0
        state = "void" if verdict.reason else "complete"
        ended = dataclasses.replace(order, state=state, reason=verdict.reason)
        self._write_order(lease, ended, cluster.checkpoint_text)
        log.info("checkpoint %s at step %d: %s", order.identifier, order.step, state)
        again = 0 < self._late_orders <= REARMINGS
        if order.requested_by in cluster.request_texts and not again:
            text = cluster.request_texts[order.requested_by]
            self._store.order(lease, Section.REQUESTS, order.requested_by, None, text)

    def _complete(
        self,
        lease: Lease,
        plan: Plan,
        order: CheckpointOrder,
        complete: checkpointing.Complete,
    ) -> checkpointing.Void:
        """Write the manifest and the ledger; an empty reason means it worked."""
        try:
            entry = self._storage.finish(order, plan, complete.parts)
        except OSError as error:
            return checkpointing.Void(f"the manifest could not be written: {error}")
        self._store.order(lease, Section.LEDGER, entry.identifier, encode(entry), None)
        return checkpointing.Void("")

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
        step = checkpointing.step_to_arm(cluster.ranks(plan), margin, on_grid)
        identifier = self._new_identifier()
        order = CheckpointOrder(
            identifier=identifier,
            attempt=plan.attempt,
            epoch=lease.epoch,
            step=step,
            path=self._storage.path(step, identifier),
            state="armed",
            deadline_s=self._settings.checkpoint.deadline_s,
            requested_by=asked_by,
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

    def _write_order(self, lease: Lease, order: CheckpointOrder, expected: str | None) -> None:
        self._store.order(lease, Section.CHECKPOINT, CURRENT, encode(order), expected)

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
                known = (
                    encode(cluster.ledger[entry.identifier])
                    if (entry.identifier in cluster.ledger)
                    else None
                )
                self._store.order(lease, Section.LEDGER, entry.identifier, encode(entry), known)


def _saved_to_grow(order: CheckpointOrder | None, plan: Plan) -> bool:
    return order is not None and order.attempt == plan.attempt and order.requested_by == "grow"
