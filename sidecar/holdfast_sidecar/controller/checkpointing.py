"""The leader's checkpoints: armed when due or asked for, rescued when an attempt has ended.

When to save is judged in `policy.checkpoint_order`; what then happens is in `checkpoint_orders`.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from holdfast_sidecar.checkpoint.writer.client import StorageUnanswered
from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.controller.checkpoint_orders import CheckpointOrders, CheckpointStorage
from holdfast_sidecar.controller.fence import Stopwatch
from holdfast_sidecar.policy import checkpoint_order, precaution, preemption, replacement
from holdfast_sidecar.policy.checkpoint_choice import first_that_counts, trusted_below
from holdfast_sidecar.policy.checkpoint_schedule import work_out
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.policy.outcome import DecisionContext
from holdfast_sidecar.policy.preemption import PreemptionState
from holdfast_sidecar.policy.running import newcomers
from holdfast_sidecar.records.checkpoint import CheckpointOrder, CheckpointTally, LedgerEntry
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.store.protocol import TALLY, Lease, Section, Store

log = logging.getLogger(__name__)


# Counts what became of coordinated checkpoints, and what they took. Pure.
#
# The count is in the store, written by whoever leads: the next leader goes on from it, so that no
# rate of it jumps.

OUTCOMES = ("complete", "void", "skipped")
"""Skipped ones were due while another was still being written."""
TRIGGERS = ("periodic", "manual")
"""Counted from 0; others appear with their first checkpoint."""


def of_run(tally: CheckpointTally, run: str) -> CheckpointTally:
    """This run's: what an earlier one under the same name saved is no part of it. run: empty where
    nobody knows which it is."""
    if not run or tally.run in ("", run):
        return tally
    return CheckpointTally(counted=tally.counted, slow=tally.slow, run=run)


def with_ended(
    tally: CheckpointTally, order: CheckpointOrder | None, entry: LedgerEntry | None
) -> CheckpointTally:
    """With this order, if it has ended and is not counted yet; `entry`: its own in the ledger."""
    if order is None or order.state not in OUTCOMES or order.identifier == tally.counted:
        return tally
    tally = replace(_one_more(tally, order.state, order.trigger), counted=order.identifier)
    if order.state != "complete" or entry is None or entry.write_s <= 0:
        return tally
    return replace(
        tally,
        measured=tally.measured + 1,
        blocked_s=tally.blocked_s + entry.blocked_s,
        write_s=tally.write_s + entry.write_s,
    )


def with_skipped(tally: CheckpointTally, slow: str) -> CheckpointTally:
    """With the one that was due while the order `slow` was still being written; empty: none was."""
    if not slow or slow == tally.slow:
        return tally
    return replace(_one_more(tally, "skipped", "periodic"), slow=slow)


def _one_more(tally: CheckpointTally, outcome: str, trigger: str) -> CheckpointTally:
    what = f"{outcome} {trigger}"
    return replace(tally, ended={**tally.ended, what: tally.ended.get(what, 0) + 1})


SLOW_S = 30.0
"""A checkpoint that is written for less says nothing of storage: the writer gives way to the ranks,
and loads torch first. Where one is due every few seconds, some are skipped."""

RESCUE_STILL_S = 60.0
"""A rescue that has not moved a byte for so long is not waited for: training would stand still for
storage that may be away for hours, to save what was computed since the last checkpoint."""


class CheckpointKeeping:
    """What a leading sidecar does about checkpoints; asked once per exchange."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        storage: CheckpointStorage,
        new_identifier: Callable[[], str],
    ) -> None:
        self._store = store
        self._settings = settings
        self._storage = storage
        self._new_identifier = new_identifier
        self._orders = CheckpointOrders(store, storage)
        self._watch = Stopwatch()
        self._noted_failures: set[tuple[str, int]] = set()
        self._rebuilt_as = ""
        self._rebuilds = 0
        self._listing: tuple[str, Mapping[str, str]] = ("", {})
        """On which occasion storage was last asked for all it has; the ledger as it was then."""
        self._rescued = ""
        self._precautions = precaution.Precautions()
        self._skipped_for = ""
        """The checkpoint that is still being written though the next was due; else empty."""
        self.slow = ""
        """The same, once it has been written for so long that it says something of storage."""

    def keep(
        self,
        lease: Lease,
        cluster: Cluster,
        plan: Plan,
        circumstances: DecisionContext,
        leaving: PreemptionState | None = None,
    ) -> None:
        """Under a running plan: follow the armed order, or arm one."""
        now = circumstances.now
        self._rebuild_ledger(lease, cluster)
        self._note_failed_loads(lease, cluster, plan)
        if self._orders.tidy():
            self._rebuilds += 1  # look again with the next reading
        order = cluster.checkpoint
        if order is not None and order.state == "armed":
            self._orders.follow(lease, cluster, plan, order, now)
        elif order is not None and order.state == "writing":
            self._skip_if_due(cluster, plan, order, circumstances)
        elif leaving is not None:
            self._save_before(leaving, lease, cluster, plan)
        else:
            self._consider(lease, cluster, plan, circumstances)

    def count(self, lease: Lease, cluster: Cluster) -> None:
        """Before the next order takes the place of one that has ended."""
        order = cluster.checkpoint
        entry = None if order is None else cluster.ledger.get(order.identifier)
        plan = cluster.plan
        run = f"{plan.began_unix_s:.6f}" if plan is not None and plan.began_unix_s else ""
        before = of_run(cluster.tally, run)
        tally = with_skipped(with_ended(before, order, entry), self._skipped_for)
        if tally != cluster.tally:
            told = encode(dataclasses.replace(tally, run=run or tally.run))
            self._store.order(lease, Section.CHECKPOINT, TALLY, told, cluster.tally_text)

    def follow_writing(self, lease: Lease, cluster: Cluster, now: float) -> None:
        """Whatever the plan: what only waits for its writers."""
        order = cluster.checkpoint
        if order is None or order.state != "writing":
            self._skipped_for = self.slow = ""
        else:
            self._orders.follow_writing(lease, cluster, order, now)

    def settle(self, lease: Lease, cluster: Cluster) -> bool:
        """See CheckpointOrders."""
        return self._orders.settle(lease, cluster)

    def is_rescuing(self, lease: Lease, cluster: Cluster, now: float) -> bool:
        """Whether the newest snapshot of the attempt that ended is being written down; begin to.

        Asked where it could not be resumed from as it lies in memory, or would go with the job.
        """
        plan, order = cluster.plan, cluster.checkpoint
        if plan is None or not self._storage.path(0, ""):
            return False
        if order is not None and order.state == "writing":
            key = f"{order.identifier} {checkpoint_order.how_far(order, cluster.nodes)}"
            return self._watch.elapsed("rescue", key, now) < RESCUE_STILL_S
        key = f"{lease.epoch} {plan.attempt}"
        if self._rescued == key:
            return False
        below = trusted_below(cluster, plan, cluster.incidents.get(plan.incident))
        found = checkpoint_order.newest_shipment(plan, cluster.nodes, cluster.is_alive, below)
        saved = checkpoint_order.last_step(cluster.ledger.values(), plan, cluster.ranks(plan))
        if found is None or found.step <= saved:
            return False
        if self._orders.write(lease, self._rescue(lease, plan, found), cluster.checkpoint_text):
            log.info("the snapshot of step %d is written down first", found.step)
            self._rescued = key
        return True

    def _rescue(
        self, lease: Lease, plan: Plan, found: checkpoint_order.Shipment
    ) -> CheckpointOrder:
        identifier = self._new_identifier()
        return CheckpointOrder(
            identifier=identifier,
            attempt=plan.attempt,
            epoch=lease.epoch,
            step=found.step,
            path=self._storage.path(found.step, identifier),
            state="writing",
            deadline_s=0.0,
            write_timeout_s=self._settings.checkpoint.write_timeout_s,
            mode="snapshot",
            trigger="failure",
            writers=found.writers,
            since=first_that_counts(plan),
        )

    def _rebuild_ledger(self, lease: Lease, cluster: Cluster) -> None:
        """Make the ledger say what storage holds, no less and no more.

        A listing takes its time: where an entry has changed since it was asked for, the store
        refuses it.
        """
        occasion = f"{lease.epoch} {self._rebuilds}"
        if self._rebuilt_as == occasion:
            return
        if self._listing[0] != occasion:
            self._listing = (occasion, cluster.ledger_texts)
        try:
            existing = {e.identifier: encode(e) for e in self._storage.entries(occasion)}
        except StorageUnanswered:
            return
        except OSError as error:
            log.warning("can't rebuild the ledger, storage is away: %s", error)
            self._rebuilt_as = occasion
            return
        self._rebuilt_as = occasion
        _, entered = self._listing
        for name in existing.keys() | entered.keys():
            if existing.get(name) != entered.get(name):
                self._store.order(
                    lease, Section.LEDGER, name, existing.get(name), entered.get(name)
                )

    def _is_due(
        self,
        cluster: Cluster,
        plan: Plan,
        order: CheckpointOrder | None,
        last_step: int,
        circumstances: DecisionContext,
    ) -> bool:
        """Whether the schedule asks for one; `order` is the newest there was."""
        settings, ranks = self._settings.checkpoint, cluster.ranks(plan)
        key = f"{plan.attempt} {'' if order is None else order.identifier}"
        since_s = self._watch.elapsed("schedule", key, circumstances.now)
        if order is None or order.attempt != plan.attempt:
            # What an earlier attempt did and a snapshot kept is on no storage either.
            since_s = max(since_s, checkpoint_order.seconds_of_work(last_step, ranks))
        every_s = work_out(cluster, settings, circumstances.now_unix_s).interval.target_s
        return checkpoint_order.is_due(settings, ranks, last_step, since_s, every_s)

    def _skip_if_due(
        self, cluster: Cluster, plan: Plan, order: CheckpointOrder, circumstances: DecisionContext
    ) -> None:
        """Never two writes at once: one that is due meanwhile is skipped, and counted once."""
        ranks = cluster.ranks(plan)
        due = self._is_due(cluster, plan, order, order.step, circumstances)
        every_steps = self._settings.checkpoint.every_steps
        furthest = max((r.step for r in ranks.values()), default=0)
        if every_steps:
            due = furthest >= order.step + every_steps
        if due and self._skipped_for != order.identifier:
            self._skipped_for = order.identifier
            log.info("checkpoint %s is still being written: the next is skipped", order.identifier)
        written_s = self._watch.elapsed("written", order.identifier, circumstances.now)
        self.slow = self._skipped_for if written_s >= SLOW_S else ""

    def _save_before(
        self, leaving: PreemptionState, lease: Lease, cluster: Cluster, plan: Plan
    ) -> None:
        """Members must go: save what can be saved before they do."""
        wanted = preemption.wants(cluster, plan)
        if isinstance(wanted, checkpoint_order.Shipment):
            order = dataclasses.replace(
                self._rescue(lease, plan, wanted),
                requested_by=preemption.ASKED_BY,
                trigger=checkpoint_order.trigger_of(preemption.ASKED_BY),
            )
            self._orders.write(lease, order, cluster.checkpoint_text)
        elif wanted and not self._obstacle(plan, cluster):
            self._arm(lease, cluster, plan, preemption.ASKED_BY, leaving.left_s)

    def _consider(
        self, lease: Lease, cluster: Cluster, plan: Plan, circumstances: DecisionContext
    ) -> None:
        ranks = cluster.ranks(plan)
        requests = cluster.asked_to_save()
        asked_by = ",".join(requests)
        last_step = checkpoint_order.last_step(cluster.ledger.values(), plan, ranks)
        order = cluster.checkpoint
        due = self._is_due(cluster, plan, order, last_step, circumstances)
        if not asked_by and newcomers(cluster, plan) and not _saved_to_grow(order, plan):
            asked_by = "grow"
        asked_by = asked_by or replacement.asks_to_save(cluster, plan, circumstances)
        foretold = None
        if not asked_by:
            if order is not None and self._orders.is_worth_another_try(order):
                self._precautions.forget(order)
            foretold = self._precautions.wanted(cluster, plan, circumstances.now_unix_s)
            asked_by = "" if foretold is None else precaution.name_of(foretold)
        if not asked_by and not due:
            return
        obstacle = self._obstacle(plan, cluster)
        if obstacle and requests:
            waited = self._watch.elapsed("request", requests[0], circumstances.now)
            if "three lines" in obstacle or waited > self._settings.checkpoint.deadline_s:
                self._refuse(lease, cluster, plan, requests, obstacle)
            return
        if not obstacle:
            if foretold is not None:
                self._precautions.ordered(foretold, circumstances.now_unix_s)
            self._arm(lease, cluster, plan, asked_by)

    def _obstacle(self, plan: Plan, cluster: Cluster) -> str:
        if not self._storage.path(0, ""):
            return "no checkpoint directory is configured (three lines need --checkpoint-dir)"
        obstacle = checkpoint_order.obstacle(plan, cluster.ranks(plan))
        return obstacle or checkpoint_order.awaited_slots(plan, cluster.nodes)

    def _arm(
        self,
        lease: Lease,
        cluster: Cluster,
        plan: Plan,
        asked_by: str,
        left_s: float = float("inf"),
    ) -> None:
        margin = checkpoint_order.margin_s(self._settings.sidecar, self._orders.late_in_a_row)
        on_grid = 0 if asked_by else self._settings.checkpoint.every_steps
        ranks = cluster.ranks(plan)
        step = checkpoint_order.step_to_arm(ranks, margin, on_grid)
        # An armed order holds up every other one: as long as nobody knows how far its step lies
        # ahead, it is none of those that can be reached soon.
        if on_grid and not checkpoint_order.is_within_reach(step, ranks, margin):
            return
        mode = checkpoint_order.mode_for(plan, cluster.nodes)
        identifier = self._new_identifier()
        order = CheckpointOrder(
            identifier=identifier,
            attempt=plan.attempt,
            epoch=lease.epoch,
            step=step,
            path=self._storage.path(step, identifier),
            state="armed",
            deadline_s=min(
                checkpoint_order.seconds_to_save(step, ranks)
                + self._settings.checkpoint.deadline_s,
                preemption.patience_s(
                    mode, left_s, preemption.writing_s(cluster, self._settings.policy)
                ),
            ),
            requested_by=asked_by,
            write_timeout_s=self._settings.checkpoint.write_timeout_s,
            mode=mode,
            trigger=checkpoint_order.trigger_of(asked_by),
        )
        self._orders.write(lease, order, cluster.checkpoint_text)

    def _refuse(
        self, lease: Lease, cluster: Cluster, plan: Plan, requests: list[str], reason: str
    ) -> None:
        order = CheckpointOrder(
            identifier=self._new_identifier(),
            attempt=plan.attempt,
            epoch=lease.epoch,
            step=0,
            path="",
            state="void",
            deadline_s=0.0,
            requested_by=",".join(requests),
            reason=reason,
            trigger=checkpoint_order.trigger_of(requests[0]),
        )
        self._orders.write(lease, order, cluster.checkpoint_text)
        self._orders.answer(lease, cluster, requests, reason)

    def _note_failed_loads(self, lease: Lease, cluster: Cluster, plan: Plan) -> None:
        for index, candidate in enumerate(plan.resume):
            failed = any(r.resume_failures >> index & 1 for r in cluster.ranks(plan).values())
            key = (candidate.identifier, plan.attempt)
            if not failed or candidate.tier != "durable" or key in self._noted_failures:
                continue
            try:
                entry = self._storage.failed_to_load(candidate.identifier, plan.attempt)
            except StorageUnanswered:
                continue
            except OSError as error:
                log.warning("can't note that %s did not load: %s", candidate.identifier, error)
                entry = None
            self._noted_failures.add(key)
            if entry is not None:
                known = cluster.ledger_texts.get(entry.identifier)
                self._store.order(lease, Section.LEDGER, entry.identifier, encode(entry), known)


def _saved_to_grow(order: CheckpointOrder | None, plan: Plan) -> bool:
    return (
        order is not None
        and order.attempt == plan.attempt
        and "grow" in order.answers
        and not order.came_too_late
    )
