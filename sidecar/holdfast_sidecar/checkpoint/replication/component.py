"""The loop's view of peer copies: serves this node's snapshots, pulls another's, fetches at a
resume, and reports what came of it. Asked at every tick; what takes time goes on in threads.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.contract.page import Word
from holdfast_sidecar.checkpoint.replication.fetch import (
    Neighbours,
    PeerCounts,
    TransferContext,
    TransferCounts,
)
from holdfast_sidecar.checkpoint.replication.pull import Transfers
from holdfast_sidecar.checkpoint.replication.server import Hosting
from holdfast_sidecar.checkpoint.replication.wire import Bucket, PeerCredentials, Throttle
from holdfast_sidecar.checkpoint.snapshot.files import NAMED
from holdfast_sidecar.checkpoint.snapshot.memory import SlotMemory
from holdfast_sidecar.config.settings import SnapshotSettings
from holdfast_sidecar.policy import replication
from holdfast_sidecar.policy.replication import is_loopback
from holdfast_sidecar.ranks.ending import ActionRunner
from holdfast_sidecar.ranks.observation import RankLook
from holdfast_sidecar.ranks.page import Pages, arm_peer, read_copied
from holdfast_sidecar.records.checkpoint import SnapshotReport
from holdfast_sidecar.records.findings import Finding, Kind, Moment
from holdfast_sidecar.store.orders import Orders

log = logging.getLogger(__name__)

FEWEST_FAILURES = 2
"""Of peer orders in a row before it is called trouble: one is a node that just left."""


@dataclass
class NodePeers:
    """One node's part in the peer tier."""

    node: str
    job: str
    shm: Path
    settings: SnapshotSettings
    pages: Pages
    runner: ActionRunner
    wake: Callable[[], None]
    """Has the loop tick at once."""
    memory: SlotMemory = NAMED
    counts: PeerCounts = field(default_factory=PeerCounts)
    _tally: TransferCounts = field(default_factory=TransferCounts)
    _throttle: Throttle = field(init=False)
    _hosting: Hosting = field(init=False)
    _transfers: Transfers = field(init=False)
    _waits: dict[int, replication.ReplicaWait] = field(default_factory=dict)
    _waits_of: int = -1
    _trouble: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._throttle = Throttle(Bucket(self.settings.peer_bytes_per_s))
        self._hosting = Hosting(self.shm, self.settings.peer_listen, self._tally)
        self._transfers = Transfers(self.node, self.shm, self.wake)

    def follow(
        self,
        orders: Orders,
        looks: Sequence[RankLook],
        report: SnapshotReport | None,
        now_s: float,
    ) -> SnapshotReport | None:
        """The node's snapshot report, with what there is to say of copies."""
        if self.settings.peer == "off":
            return report
        neighbours = Neighbours.of(orders, self.node)
        means = None
        if not neighbours.are_none:
            self._hosting.open()
            means = self._means(orders)
        self._hosting.admit(None if means is None else means.own)
        self._hosting.speak_to(looks[0].identity.attempt if looks else -1)
        if self.settings.peer == "sync":
            self._let_ranks_wait(orders, looks, now_s)
        copied_for, copied_step = self._arm(orders, now_s)
        self._transfers.follow(orders, neighbours, means)
        self.counts = self._tally.read(self._hosting.refused)
        address = self._hosting.address(neighbours.own_address)
        self._trouble = self._find_trouble(orders)
        if is_loopback(address) and neighbours.are_elsewhere:
            self._trouble.append(f"other machines can't reach {address}: set snapshot.peer_listen")
        if report is None and not address:
            return None
        return dataclasses.replace(
            report or SnapshotReport(),
            copies=self._transfers.copies.steps(),
            copied_for=copied_for,
            copied_step=copied_step,
            pulled=self._transfers.pulled,
            peer_address=address,
            failure_domain=self.settings.failure_domain,
        )

    def findings(self, moment: Moment) -> list[Finding]:
        """Why copies on other nodes are behind, when they are."""
        return [
            Finding(Kind.NO_PEER_COPY, self.node, moment.now_unix_s, 1.0, evidence=[why])
            for why in self._trouble
        ]

    def close(self) -> None:
        """End all transfers and stop serving."""
        self._transfers.cut()
        self._hosting.close()

    def _means(self, orders: Orders) -> TransferContext | None:
        key, plan = orders.key, orders.plan
        if key is None or plan is None or plan.state not in ("running", "evidence"):
            return None
        try:
            secret = bytes.fromhex(key.secret)
        except ValueError:
            return None  # written by none of us
        own = PeerCredentials(self.job, key.attempt, self.node, secret)
        return TransferContext(
            own, self._transfers.copies, self._throttle, self._tally, self.memory
        )

    def _arm(self, orders: Orders, now_s: float) -> tuple[dict[str, str], int]:
        order = orders.peer
        if order is None:
            return {}, -1
        held = self.pages.held()
        self.runner.run("arm_peer", lambda: arm_peer(order, held, int(now_s * 1e9)))
        if self.node not in order.pulls:
            return {}, -1
        return read_copied(order, [p for p in held if p.identity.attempt == order.attempt])

    def _let_ranks_wait(self, orders: Orders, looks: Sequence[RankLook], now_s: float) -> None:
        """Ranks wait for confirmations (peer copies in step) as long as their partner keeps up."""
        attempt = looks[0].identity.attempt if looks else -1
        if attempt != self._waits_of:
            self._waits, self._waits_of = {}, attempt
        order, safe = orders.peer, self._hosting.safe()
        is_paired = (
            order is not None
            and order.state == "standing"
            and order.attempt == attempt
            and self.node in order.pulls
        )
        for look in looks:
            self._waits[look.rank] = wait = replication.judge_peer_wait(
                self._waits.get(look.rank, replication.ReplicaWait()),
                look.words[Word.SNAPSHOT_SEALED] - 1,
                safe.get(look.rank, -1),
                is_paired,
                now_s,
                self.settings.peer_timeout_s,
            )
            if wait.shall_wait:
                self._hosting.let_wait(look.rank)
            else:
                self._hosting.release(look.rank)

    def _find_trouble(self, orders: Orders) -> list[str]:
        trouble = [self._hosting.obstacle] if self._hosting.obstacle else []
        order = orders.peer
        if order is not None and order.failures >= FEWEST_FAILURES and orders.is_leader:
            why = f", the newest because {order.reason}" if order.reason else ""
            trouble.append(f"{order.failures} peer copies in a row came to nothing{why}")
        let_go = sorted(rank for rank, wait in self._waits.items() if not wait.shall_wait)
        if let_go and order is not None:
            holder = order.pulls.get(self.node, "")
            behind = f"node {holder} is behind with them" if holder else "no other node takes them"
            trouble.append(f"ranks {let_go} go on without copies of their newest steps: {behind}")
        return trouble
