"""The leader's hand for snapshots: writes how often they shall be taken when that has changed."""

from __future__ import annotations

import dataclasses
import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from holdfast_sidecar.checkpoint.ledger import NothingResumable
from holdfast_sidecar.checkpoint.writer.client import StorageUnanswered
from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.controller.checkpoint_orders import CheckpointStorage
from holdfast_sidecar.controller.fence import Stopwatch
from holdfast_sidecar.policy import checkpoint_order, checkpoint_schedule, replication
from holdfast_sidecar.policy.checkpoint_schedule import decide_rhythm
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.checkpoint import AttemptKey, PeerOrder, SnapshotOrder
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import Candidate, Plan
from holdfast_sidecar.store.protocol import CURRENT, Lease, Section, Store

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SnapshotKeeping:
    """What a leading sidecar does about snapshots; asked once per exchange of a running plan."""

    store: Store
    settings: Settings

    def keep(self, lease: Lease, cluster: Cluster, plan: Plan) -> None:
        """Write the order that shall stand, unless it does already."""
        order = decide_rhythm(
            self.settings.snapshot,
            plan,
            cluster.nodes,
            cluster.ranks(plan).values(),
            cluster.snapshot,
            lease.epoch,
        )
        if order is None:
            return
        if self.store.order(lease, Section.SNAPSHOT, CURRENT, encode(order), cluster.snapshot_text):
            log.info("%s", _say(order))


def _say(order: SnapshotOrder) -> str:
    if order.every_steps == 0:
        return f"no snapshots: {order.reason}"
    return f"a snapshot every {f'{order.every_steps} steps' if order.every_steps > 1 else 'step'}"


# The leader's peer copies: the attempt's key, who copies whose snapshots, one order after another.
#
# Round trips between sidecars are signed with the same key, so there is one without copies, too.
#
# Whom to pair and what became of an order is judged in `policy.replication`.

SECRET_BYTES = 32

AGAIN_S = 1.0
LONGEST_AGAIN_S = 60.0
"""After an order that came to nothing the next one waits, twice as long each time: what is in the
way (no room, a slow link) seldom passes within a second, and holding slots costs snapshots."""


class PeerKeeping:
    """What a leading sidecar does about peer copies; asked once per exchange."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        new_identifier: Callable[[], str],
        new_secret: Callable[[], str] = lambda: secrets.token_hex(SECRET_BYTES),
    ) -> None:
        self._store = store
        self._settings = settings
        self._new_identifier = new_identifier
        self._new_secret = new_secret
        self._watch = Stopwatch()
        self._late_orders = 0

    def keep(self, lease: Lease, cluster: Cluster, plan: Plan, now: float) -> None:
        """Bring the copies of a running plan one step further. `now` is monotonic seconds."""
        if len(cluster.nodes) < 2:
            return
        if cluster.key is None or cluster.key.attempt != plan.attempt:
            # Round trips need it too, whether or not there are copies.
            self._write_key(lease, cluster, AttemptKey(plan.attempt, self._new_secret()))
        if self._settings.snapshot.peer == "off":
            return
        order = cluster.peer
        if order is not None and order.attempt != plan.attempt:
            order = None
        if self._settings.snapshot.peer == "sync":
            self._stand(lease, cluster, plan, order)
        elif order is not None and order.state == "armed":
            self._follow(lease, cluster, plan, order, now)
        else:
            self._consider(lease, cluster, plan, order, now)

    def conclude(self, lease: Lease, cluster: Cluster) -> None:
        """The job is over, and so is its secret."""
        if cluster.key_text is not None:
            self._write_key(lease, cluster, None)

    def _stand(self, lease: Lease, cluster: Cluster, plan: Plan, order: PeerOrder | None) -> None:
        """Copies in step: the pairs stand for the attempt, and change with the nodes."""
        pulls = self._pairs(cluster, plan)
        if order is not None and order.state == "standing" and order.pulls == pulls:
            return
        standing = PeerOrder(
            identifier=self._new_identifier(),
            attempt=plan.attempt,
            epoch=lease.epoch,
            step=-1,
            state="standing",
            deadline_s=self._settings.snapshot.peer_timeout_s,
            pulls=pulls,
        )
        if self._write(lease, cluster, standing):
            log.info("peer copies in step: %s", _told(pulls))

    def _follow(
        self, lease: Lease, cluster: Cluster, plan: Plan, order: PeerOrder, now: float
    ) -> None:
        armed_for = self._watch.elapsed("armed", order.identifier, now)
        verdict = replication.judge_peers(order, plan, cluster.nodes, cluster.lost, armed_for)
        if isinstance(verdict, replication.Through):
            self._late_orders = 0
            done = dataclasses.replace(order, state="complete", through=order.step, failures=0)
            # The next order says so too: one write that wakes everybody instead of two.
            if not self._arm(lease, cluster, plan, done):
                self._write(lease, cluster, done)
        elif isinstance(verdict, replication.Moved):
            self._write(lease, cluster, dataclasses.replace(order, step=verdict.step))
        elif isinstance(verdict, replication.ReplicationVoid):
            void = dataclasses.replace(order, state="void", reason=verdict.reason)
            self._late_orders = self._late_orders + 1 if void.came_too_late else 0
            if not void.came_too_late:
                void = dataclasses.replace(void, failures=order.failures + 1)
            if self._write(lease, cluster, void):
                log.info("peer copy of step %d: %s", order.step, verdict.reason)

    def _consider(
        self, lease: Lease, cluster: Cluster, plan: Plan, order: PeerOrder | None, now: float
    ) -> None:
        pause = 0.0
        if order is not None and order.state == "void" and not order.came_too_late:
            pause = min(AGAIN_S * 2.0 ** min(order.failures, 10), LONGEST_AGAIN_S)
        tried = order.identifier if order is not None else ""
        if self._watch.elapsed("again", f"{plan.attempt} {tried}", now) >= pause:
            self._arm(lease, cluster, plan, order)

    def _arm(self, lease: Lease, cluster: Cluster, plan: Plan, before: PeerOrder | None) -> bool:
        """Arm the next order if everything is there for it; whether that was done."""
        pulls = self._pairs(cluster, plan)
        every = _every_steps(cluster, plan)
        ranks = cluster.ranks(plan)
        if every < 1 or len(pulls) < len(plan.members) or checkpoint_order.obstacle(plan, ranks):
            return False
        margin = checkpoint_order.margin_s(self._settings.sidecar, self._late_orders)
        step = checkpoint_order.step_to_arm(ranks, margin, every)
        ahead_s = checkpoint_order.seconds_to_save(step, ranks)
        most_ranks = max(member.slots for member in plan.members)
        order = PeerOrder(
            identifier=self._new_identifier(),
            attempt=plan.attempt,
            epoch=lease.epoch,
            step=step,
            state="armed",
            deadline_s=ahead_s + margin + self._settings.snapshot.peer_timeout_s * most_ranks,
            pulls=pulls,
            through=before.through if before is not None else -1,
            failures=before.failures if before is not None else 0,
        )
        return self._write(lease, cluster, order)

    def _pairs(self, cluster: Cluster, plan: Plan) -> dict[str, str]:
        before = cluster.peer.pulls if cluster.peer is not None else {}
        return replication.pair(
            replication.sources(cluster, plan), replication.holders(cluster), before
        )

    def _write(self, lease: Lease, cluster: Cluster, order: PeerOrder) -> bool:
        return self._store.order(lease, Section.PEER, CURRENT, encode(order), cluster.peer_text)

    def _write_key(self, lease: Lease, cluster: Cluster, key: AttemptKey | None) -> None:
        text = None if key is None else encode(key)
        self._store.order(lease, Section.KEY, CURRENT, text, cluster.key_text)


def _every_steps(cluster: Cluster, plan: Plan) -> int:
    """How often this attempt's ranks take snapshots; 0 while some node has no slots to spare."""
    order = cluster.snapshot
    if order is None or order.attempt != plan.attempt:
        return 0
    has_slots = (
        checkpoint_schedule.fewest_slots(plan, cluster.nodes) >= checkpoint_schedule.FEWEST_SLOTS
    )
    return order.every_steps if has_slots else 0


def _told(pulls: dict[str, str]) -> str:
    return ", ".join(f"{source} to {holder}" for source, holder in sorted(pulls.items())) or "none"


# What the next attempt would resume from, looked up while the job is well.
#
# A restart from snapshots needs the checkpoints only as what comes after them, and shall not wait
# until a writer has started and looked through storage for it.

AGAIN_AFTER_S = 30.0
"""Storage that is away is left alone for so long: nothing depends on this look."""


class ResumePreview:
    """A list of candidates that holds for as long as the ledger says the same."""

    def __init__(self, storage: CheckpointStorage) -> None:
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
        except StorageUnanswered:
            return
        except (OSError, NothingResumable):
            self._not_before = now + AGAIN_AFTER_S

    def candidates(self, lease: Lease, cluster: Cluster) -> list[Candidate] | None:
        """What was found, best first; None: nothing, or it may have changed since."""
        is_current = self._ledger == (lease.epoch, cluster.ledger_texts)
        return self._found if is_current else None
