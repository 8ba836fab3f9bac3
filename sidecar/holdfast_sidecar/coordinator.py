"""The sidecar's thread that agrees with the other nodes; the node's own loop never waits for it.

Tells the store what the loop saw, reads what was agreed, leads when it is this node's turn, and
hands the loop the orders it may obey. While the store is away it only keeps trying.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from holdfast_sidecar import __version__
from holdfast_sidecar.coordination.exchange_guard import ExchangeGuard
from holdfast_sidecar.coordination.keys import ENDED_TTL_S, RUNNING_TTL_S, Section
from holdfast_sidecar.coordination.reports import (
    TERMINAL,
    AttemptKey,
    CheckpointOrder,
    NodeReport,
    PeerOrder,
    Plan,
    SavedPart,
    SnapshotOrder,
    SnapshotReport,
    encode,
)
from holdfast_sidecar.coordination.store import (
    ALL_SECTIONS,
    Heard,
    Lease,
    Store,
    StoreUnavailable,
    View,
    without_secrets,
)
from holdfast_sidecar.decisions.cluster import (
    Cluster,
    beats,
    lost_nodes,
    parse_cluster,
    unattended_nodes,
)
from holdfast_sidecar.decisions.liveness import Heartbeats
from holdfast_sidecar.fence import FenceFile
from holdfast_sidecar.leadership import Leadership
from holdfast_sidecar.local_state import LocalState, Orders
from holdfast_sidecar.settings import Settings

log = logging.getLogger(__name__)

Fenced = TypeVar("Fenced", CheckpointOrder, SnapshotOrder, PeerOrder)

LISTEN_S = 2.0
"""One wait of the listener: how long its thread may outlive a stop."""

KEEP_EVERY_S = 60.0
"""How often the keys' lifetimes are refreshed: far more often than they end."""


@dataclasses.dataclass(frozen=True)
class NodeIdentity:
    """This sidecar, as the others see it."""

    node: str
    incarnation: str
    pid: int


class Coordinator(threading.Thread):
    """One exchange with the store per heartbeat, or sooner when something changed."""

    def __init__(
        self,
        store: Store,
        identity: NodeIdentity,
        settings: Settings,
        leadership: Leadership,
        fence: FenceFile,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(name="coordinator", daemon=True)
        self._store = store
        self._identity = identity
        self._settings = settings
        self._leadership = leadership
        self._fence = fence
        self._clock = clock
        self._heartbeats = Heartbeats(late_after_s=4 * settings.sidecar.heartbeat_s)
        self._state = LocalState(launcher_alive=True, launcher_pid=0, attempt=-1)
        self._orders = Orders()
        self._plan_seen: Plan | None = None
        self._plan_refused: Plan | None = None
        self._epoch_seen = fence.fence.epoch
        self._lease_held: Lease | None = None
        self._guard = ExchangeGuard(log)
        self._beat = 0
        self._told = ""
        self._kept_at = float("-inf")
        self._kept_for_s = 0.0
        self._stopping = threading.Event()
        self._look_again = threading.Event()
        self._listener = threading.Thread(target=self._listen, name="listener", daemon=True)
        self.changed = threading.Event()

    def tell(self, state: LocalState) -> None:
        """Hand over the loop's newest picture of the node; news is sent at once."""
        is_news = _news(state) != _news(self._state)
        self._state = state
        if is_news:
            self._look_again.set()

    def look(self) -> None:
        """Something was answered: exchange at once, and let the loop look too."""
        self._look_again.set()
        self.changed.set()

    def orders(self) -> Orders:
        """What was last agreed on."""
        return self._orders

    @property
    def waiting(self) -> str:
        """Why the leader, if it is this sidecar, takes no step yet; else empty."""
        return "" if self._lease_held is None else self._leadership.waiting

    def stop(self) -> None:
        """Give up the lease and end the thread."""
        self._stopping.set()
        self._look_again.set()
        self.join(timeout=2 * self._settings.redis.timeout_s + 1)

    def run(self) -> None:
        """Exchange until stopped."""
        self._listener.start()
        while not self._stopping.is_set():
            self._look_again.clear()
            error = self._guard.run(lambda: self.exchange(self._clock(), time.time()))
            if error is not None:
                self._lose_store(error)
                self._stopping.wait(self._settings.sidecar.heartbeat_s)
            self._look_again.wait(self._settings.sidecar.heartbeat_s)
        try:
            self._store.resign(self._candidate)
        except StoreUnavailable:
            log.info("the store is away; the lease will run out by itself")

    def exchange(self, now: float, now_unix_s: float) -> None:
        """Report, read, lead if it is our turn, and update the orders. Raises StoreUnavailable."""
        self._report()
        lease = self._campaign(self._epoch_seen)
        view = self._store.read(ALL_SECTIONS)
        cluster = parse_cluster(view)
        view = without_secrets(view)
        self._heartbeats.observe(beats(cluster), view.server, now)
        if lease.candidate == self._candidate and lease != self._lease_held:
            # A failover may have lost that this epoch was granted to somebody else before.
            highest = self._highest_epoch_elsewhere(cluster)
            lease = lease if highest < lease.epoch else self._campaign(highest + 1)
        leads = lease.candidate == self._candidate
        self._lease_held = lease if leads else None
        self._obey(cluster, view, lease, leads)
        if leads:
            lost = lost_nodes(cluster, self._heartbeats, self._settings.sidecar.node_timeout_s, now)
            timeout_s = self._settings.sidecar.node_timeout_s
            unattended = unattended_nodes(cluster, self._heartbeats, timeout_s, now)
            alive = dataclasses.replace(cluster, lost=lost, unattended=unattended)
            self._leadership.lead(lease, alive, view.server, self._plan_seen, now, now_unix_s)
        self._keep(cluster, now)

    @property
    def _candidate(self) -> str:
        return f"{self._identity.node}/{self._identity.incarnation}"

    def _campaign(self, floor: int) -> Lease:
        lease = self._store.campaign(self._candidate, self._settings.sidecar.lease_s, floor)
        self._epoch_seen = max(self._epoch_seen, lease.epoch)
        return lease

    def _highest_epoch_elsewhere(self, cluster: Cluster) -> int:
        others = (n for n in cluster.nodes.values() if n.node != self._identity.node)
        return max((node.floor_epoch for node in others), default=0)

    def _report(self) -> None:
        state = self._state
        self._beat += 1
        report = NodeReport(
            node=self._identity.node,
            incarnation=self._identity.incarnation,
            beat=self._beat,
            floor_attempt=self._fence.fence.attempt,
            floor_epoch=self._epoch_seen,
            attempt=state.attempt,
            launcher_alive=state.launcher_alive,
            launcher_pid=state.launcher_pid,
            ranks=state.ranks,
            findings=state.findings,
            evidence_for=state.evidence_for,
            saved=state.saved,
            metrics_address=state.metrics_address,
            mode=self._settings.sidecar.mode,
            pid=self._identity.pid,
            version=__version__,
            waiting=self.waiting,
            snapshot=state.snapshot,
            preempted_by=state.preempted_by,
            checkpoint=None if self._lease_held is None else self._settings.checkpoint,
        )
        news = _news(state)
        self._store.report(
            Section.NODES, self._identity.node, encode(report), wake=news != self._told
        )
        self._told = news

    def _obey(self, cluster: Cluster, view: View, lease: Lease, leads: bool) -> None:
        plan = cluster.plan
        if plan is not None and not self._fence.obey(plan.attempt, plan.epoch):
            if plan != self._plan_refused:
                log.warning("refused a stale plan: attempt %d, epoch %d", plan.attempt, plan.epoch)
            self._plan_refused, plan = plan, None
        if plan is not None:
            self._plan_seen = plan
        order = self._admitted(cluster.checkpoint, plan)
        self._replace(
            Orders(
                plan=plan if plan is not None else self._orders.plan,
                checkpoint=order,
                snapshot=self._admitted(cluster.snapshot, plan),
                peer=self._admitted(cluster.peer, plan),
                key=_of_attempt(cluster.key, plan),
                skipped=self._leadership.slow_checkpoint if leads else "",
                is_leader=leads,
                lease=lease,
                store_up=True,
                view=view,
            )
        )

    def _admitted(self, order: Fenced | None, plan: Plan | None) -> Fenced | None:
        if order is None or plan is None:
            return None
        if isinstance(order, CheckpointOrder) and order.state == "writing":
            # It needs no rank, so it may be of an attempt that is over; who leads has to want it.
            return order if order.epoch >= self._fence.fence.epoch else None
        if order.attempt != plan.attempt:
            return None
        return order if self._fence.fence.admits(order.attempt, order.epoch) else None

    def _replace(self, orders: Orders) -> None:
        before = self._orders
        self._orders = orders
        if _wanted(before) != _wanted(orders):
            self.changed.set()

    def _lose_store(self, error: Exception) -> None:
        is_away = isinstance(error, StoreUnavailable)
        if is_away and self._orders.store_up:
            log.warning("the store is away, nothing cluster-wide is decided: %s", error)
        self._replace(dataclasses.replace(self._orders, store_up=False, is_leader=False))
        if not is_away:
            # Whoever has an error of its own can't lead, and must not keep others from it.
            with contextlib.suppress(StoreUnavailable):
                self._store.resign(self._candidate)

    def _listen(self) -> None:
        """Turn the store's wake-ups into a look at once, until stopped."""
        while not self._stopping.is_set():
            try:
                heard = self._store.wait(LISTEN_S)
                # Reports are for who leads; a follower needs none sooner than its next heartbeat.
                if Heard.ORDERS in heard or (heard and self._orders.is_leader):
                    self._look_again.set()
            except StoreUnavailable:
                self._stopping.wait(self._settings.sidecar.heartbeat_s)

    def _keep(self, cluster: Cluster, now: float) -> None:
        ended = cluster.plan is not None and cluster.plan.state in TERMINAL
        ttl_s = ENDED_TTL_S if ended else RUNNING_TTL_S
        if now - self._kept_at >= KEEP_EVERY_S or ttl_s != self._kept_for_s:
            self._store.keep(ttl_s)
            self._kept_at, self._kept_for_s = now, ttl_s


def _of_attempt(key: AttemptKey | None, plan: Plan | None) -> AttemptKey | None:
    return key if key is not None and plan is not None and key.attempt == plan.attempt else None


def _wanted(orders: Orders) -> tuple[object, ...]:
    """What the loop shall not wait a tick for."""
    return (
        orders.plan,
        orders.checkpoint,
        orders.snapshot,
        orders.peer,
        orders.key,
        orders.store_up,
    )


def _saved_news(saved: SavedPart | None) -> object:
    """Not the bytes, which move all the time."""
    return None if saved is None else dataclasses.replace(saved, done_bytes=0)


def _snapshot_news(snapshot: SnapshotReport | None) -> object:
    """Not the steps, which move all the time: what somebody waits for."""
    if snapshot is None:
        return None
    return (
        snapshot.attempt,
        snapshot.slots,
        snapshot.wants,
        snapshot.obstacle,
        snapshot.copied_for,
        snapshot.pulled,
        snapshot.peer_address,
    )


def _news(state: LocalState) -> str:
    """What is worth waking the others for: everything but steps, ages and measurements."""
    return repr(
        (
            state.launcher_alive,
            state.attempt,
            [(f.key, f.acts) for f in state.findings],
            state.evidence_for,
            _saved_news(state.saved),
            _snapshot_news(state.snapshot),
            state.preempted_by,
            [
                (r.rank, r.alive, r.ending, r.state_registered, r.resume_failures, r.step > 0)
                for r in state.ranks
            ],
        )
    )
