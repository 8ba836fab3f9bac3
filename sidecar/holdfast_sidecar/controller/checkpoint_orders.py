"""The way of a checkpoint order once it is armed: followed, shipped, sealed, entered, or given up.

What became of it is judged in `decisions`; storage is asked and not waited for, so that every step
here may have to be taken again at the next exchange.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from typing import Protocol

from holdfast_sidecar.checkpoint.writer.client import StorageUnanswered
from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.controller.fence import Stopwatch
from holdfast_sidecar.policy import checkpoint_choice, checkpoint_order, preemption
from holdfast_sidecar.policy.checkpoint_choice import trusted_below
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.checkpoint import (
    ATTEMPT_ENDED,
    CheckpointOrder,
    LedgerEntry,
    SavedPart,
)
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import Candidate, Plan
from holdfast_sidecar.store.protocol import CURRENT, Lease, Section, Store

log = logging.getLogger(__name__)

REARMINGS = 3
"""What a person or a finding asked for is tried again this often when the order came too late for
some rank."""

UNREAD = 8
"""Refusals that are kept for whoever asked and has not looked yet, or never will."""


class CheckpointStorage(Protocol):
    """The checkpoint storage as the leader needs it.

    Every method but `path` and `prepare` raises Unanswered until storage has answered, and OSError
    when it came to nothing.
    """

    def path(self, step: int, identifier: str) -> str:
        """Where a checkpoint shall lie; empty when no directory is configured."""

    def prepare(self) -> None:
        """It will soon be asked."""

    def candidates(self, occasion: str) -> list[Candidate]:
        """Checkpoints to try to resume from, best first.

        Raises NothingResumable when there are some and none of them is of use.
        """

    def entries(self, occasion: str) -> list[LedgerEntry]:
        """Every checkpoint that exists."""

    def finish(self, order: CheckpointOrder, plan: Plan, parts: Sequence[SavedPart]) -> LedgerEntry:
        """Write the manifest: from then on the checkpoint exists."""

    def settle(self, order: CheckpointOrder) -> LedgerEntry | None:
        """Its entry when it was sealed; None: it never will be."""

    def tidy(self, entry: LedgerEntry, plan: Plan) -> None:
        """Remove what this checkpoint has made superfluous."""

    def failed_to_load(self, identifier: str, attempt: int) -> LedgerEntry | None:
        """Note that ranks could not load it; the entry when that has made it poisoned."""

    def give_verdict(self, identifier: str, verdict: str, reason: str) -> LedgerEntry | None:
        """Note that it is `good` or `poisoned`; its entry, or None when it is gone."""


class CheckpointOrders:
    """What a leading sidecar does about the order that is under way; at most one is."""

    def __init__(self, store: Store, storage: CheckpointStorage) -> None:
        self._store = store
        self._storage = storage
        self._watch = Stopwatch()
        self._unsealed: dict[str, str] = {}
        self._untidied: tuple[LedgerEntry, Plan] | None = None
        self.late_in_a_row = 0
        """Orders that came too late for some rank."""

    def write(self, lease: Lease, order: CheckpointOrder, expected: str | None) -> bool:
        """Write an order; False when this leader is deposed or the field moved on."""
        return self._store.order(lease, Section.CHECKPOINT, CURRENT, encode(order), expected)

    def follow(
        self, lease: Lease, cluster: Cluster, plan: Plan, order: CheckpointOrder, now: float
    ) -> None:
        """An armed order: its ranks are on their way."""
        still_for_s = self._still_for_s("armed", cluster, order, now)
        verdict = checkpoint_order.judge(
            order, plan, cluster.nodes, cluster.ranks(plan), still_for_s
        )
        if isinstance(verdict, checkpoint_order.SavePending):
            self._lend(lease, cluster, order)
            return
        order = checkpoint_order.as_saved(order, plan, cluster.nodes)
        if isinstance(verdict, checkpoint_order.Copied):
            self._ship(lease, cluster, plan, order)
        elif isinstance(verdict, checkpoint_order.Complete):
            self._complete(lease, cluster, plan, order, verdict.parts)
        else:
            self.end(lease, cluster, order, verdict.reason)

    def follow_writing(
        self, lease: Lease, cluster: Cluster, order: CheckpointOrder, now: float
    ) -> None:
        """An order that needs no rank any more, whatever has become of its attempt."""
        plan = cluster.plan
        ranks = {} if plan is None or plan.attempt != order.attempt else cluster.ranks(plan)
        still_for_s = self._still_for_s("writing", cluster, order, now)
        verdict = checkpoint_order.judge_writing(
            order, cluster.nodes, cluster.unattended, ranks, still_for_s
        )
        if isinstance(verdict, checkpoint_order.SavePending):
            self._lend(lease, cluster, order)
        elif isinstance(verdict, checkpoint_order.Complete):
            as_saved = checkpoint_order.plan_of(order, plan)
            self._complete(lease, cluster, as_saved, order, verdict.parts)
        else:
            self._give_up(lease, cluster, order, verdict.reason)

    def settle(self, lease: Lease, cluster: Cluster) -> bool:
        """Before another attempt is opened: what needs the ranks is there, or never will be.

        What all ranks have copied goes on, unless their numbers were wrong. True: the order was
        written, so `cluster` knows too little of it. Raises Unanswered and OSError.
        """
        order, plan = cluster.checkpoint, cluster.plan
        if order is None or order.state not in ("armed", "writing"):
            return False
        if plan is not None and order.state == "armed":
            order = checkpoint_order.as_saved(order, plan, cluster.nodes)
        if plan is None or order.step < trusted_below(
            cluster, plan, cluster.incidents.get(plan.incident)
        ):
            if order.state == "writing":
                return False
            if plan is not None and checkpoint_order.is_copied(order, plan, cluster.nodes):
                return self._ship(lease, cluster, plan, order)
        if order.state == "armed" and order.mode == "snapshot":
            # Nothing of it is on storage before its state is `writing`.
            return self.end(lease, cluster, order, ATTEMPT_ENDED)
        entry = self._storage.settle(order)
        if entry is not None:
            self._enter(lease, entry)
        return self.end(lease, cluster, order, "" if entry is not None else ATTEMPT_ENDED)

    def end(self, lease: Lease, cluster: Cluster, order: CheckpointOrder, reason: str) -> bool:
        """Say what became of it (no reason: complete); False when this leader is deposed."""
        state = "void" if reason else "complete"
        ended = dataclasses.replace(order, state=state, reason=reason)
        self.late_in_a_row = self.late_in_a_row + 1 if ended.came_too_late else 0
        if not self.write(lease, ended, cluster.checkpoint_text):
            return False
        log.info(
            "checkpoint %s at step %d: %s%s",
            order.identifier,
            order.step,
            state,
            f" ({reason})" if reason else "",
        )
        if not self.is_worth_another_try(ended):
            self.answer(lease, cluster, order.answers, reason)
        return True

    def is_worth_another_try(self, ended: CheckpointOrder) -> bool:
        """Whether it only came too late for some rank, and not for the last time."""
        return ended.came_too_late and self.late_in_a_row <= REARMINGS

    def answer(
        self, lease: Lease, cluster: Cluster, names: Sequence[str], refused: str = ""
    ) -> None:
        """Take back requests that were met; tell those of which nothing comes, and why.

        The order itself can't tell them, as the next one may take its place before they look.
        """
        for name in names:
            if (request := cluster.requests.get(name)) is None:
                continue
            told = encode(dataclasses.replace(request, refused=refused)) if refused else None
            known = cluster.request_texts[name]
            self._store.order(lease, Section.REQUESTS, name, told, known)
        unread = sorted((r.at_unix_s, name) for name, r in cluster.requests.items() if r.refused)
        for _, name in unread[: -UNREAD if len(unread) > UNREAD else 0]:
            self._store.order(lease, Section.REQUESTS, name, None, cluster.request_texts[name])

    def tidy(self) -> bool:
        """Remove what the newest checkpoint made superfluous; whether something may be gone."""
        if self._untidied is None:
            return False
        entry, plan = self._untidied
        try:
            self._storage.tidy(entry, plan)
        except StorageUnanswered:
            return False
        except OSError as error:  # the checkpoint exists all the same
            log.warning("can't tidy up after checkpoint %s: %s", entry.identifier, error)
        self._untidied = None
        return True

    def _still_for_s(
        self, state: str, cluster: Cluster, order: CheckpointOrder, now: float
    ) -> float:
        """Since when nothing of it was written or hashed, or it has been in this state."""
        key = f"{order.identifier} {checkpoint_order.how_far(order, cluster.nodes)}"
        return self._watch.elapsed(state, key, now)

    def _ship(self, lease: Lease, cluster: Cluster, plan: Plan, order: CheckpointOrder) -> bool:
        """From here on it needs no rank: every node writes what its own have copied."""
        writing = dataclasses.replace(
            order,
            state="writing",
            writers=checkpoint_order.writers_of(plan),
            since=order.attempt,
        )
        return self.write(lease, writing, cluster.checkpoint_text)

    def _lend(self, lease: Lease, cluster: Cluster, order: CheckpointOrder) -> None:
        """A checkpoint that is on its way answers whoever asks for one before it is copied."""
        asked = [*order.answers]
        if order.state == "armed":
            asked += [preemption.ASKED_BY] if preemption.is_asked(cluster) else []
            asked += cluster.asked_to_save()
        lent = dataclasses.replace(order, requested_by=",".join(dict.fromkeys(asked)))
        if lent != order:
            self.write(lease, lent, cluster.checkpoint_text)

    def _complete(
        self,
        lease: Lease,
        cluster: Cluster,
        plan: Plan,
        order: CheckpointOrder,
        parts: Sequence[SavedPart],
    ) -> None:
        """Write the manifest, the ledger and the order; what is superfluous goes later."""
        if order.identifier in self._unsealed:
            self._give_up(lease, cluster, order, self._unsealed[order.identifier])
            return
        try:
            entry = self._storage.finish(order, plan, parts)
        except StorageUnanswered:
            self._lend(lease, cluster, order)
            return
        except OSError as error:
            # Nobody knows yet whether the manifest is there: that is settled first.
            self._unsealed = {order.identifier: f"the manifest could not be written: {error}"}
            return
        self._enter(lease, entry)
        # The lease was in force just now: whoever lost it may remove nothing that others load.
        if self.end(lease, cluster, order, ""):
            self._untidied = (entry, plan)

    def _give_up(self, lease: Lease, cluster: Cluster, order: CheckpointOrder, reason: str) -> None:
        """Void it on storage too, so that nobody seals it later; unless somebody has."""
        try:
            entry = self._storage.settle(order)
        except StorageUnanswered:
            return
        except OSError as error:
            log.warning("checkpoint %s: can't be marked as given up: %s", order.identifier, error)
            entry = None
        if entry is not None:
            self._enter(lease, entry)
            reason = ""
        self.end(lease, cluster, order, reason)

    def _enter(self, lease: Lease, entry: LedgerEntry) -> None:
        self._store.order(lease, Section.LEDGER, entry.identifier, encode(entry), None)


# The leader's verdicts on checkpoints: what proved good, and what the job went back behind.
#
# They are written beside the files first, which are the truth, and then into the ledger. When is
# judged in `policy.checkpoint_choice` and `policy.checkpoint_choice`.

AGAIN_AFTER_S = 30.0
"""Storage that could not take a verdict is asked again: nothing waits for it then."""


class VerdictKeeping:
    """What a leading sidecar does about verdicts; asked once per exchange."""

    def __init__(
        self, store: Store, settings: CheckpointSettings, storage: CheckpointStorage
    ) -> None:
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
            except StorageUnanswered:
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
            except StorageUnanswered:
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
        except StorageUnanswered:
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
