"""The transfers that go on at this node, kept to what the orders say: what is wanted is started,
what no longer is wanted is cut.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from holdfast_sidecar.peers.copies import Copies
from holdfast_sidecar.peers.fetching import Fetching, marker_path
from holdfast_sidecar.peers.following import Followed, Following
from holdfast_sidecar.peers.gathering import Gathering
from holdfast_sidecar.peers.handshake import Credentials
from holdfast_sidecar.peers.means import Means
from holdfast_sidecar.peers.neighbours import Neighbours
from holdfast_sidecar.peers.source import Partner
from holdfast_sidecar.policy.replication import is_abandoned, ranks_of
from holdfast_sidecar.records.checkpoint import PeerOrder
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.store.orders import Orders

log = logging.getLogger(__name__)


class Transfers:
    """Looked after at every tick; the transfers have threads of their own."""

    def __init__(self, node: str, shm: Path, wake: Callable[[], None]) -> None:
        self._node = node
        self._shm = shm
        self._wake = wake
        self._gathering: Gathering | None = None
        self._following: dict[Followed, Following] = {}
        self._fetching: Fetching | None = None
        self._own: Credentials | None = None
        self._neighbours = Neighbours(node)
        self.copies = Copies(shm)

    @property
    def pulled(self) -> str:
        """Identifier of the newest peer order whose copies are all here; empty: none."""
        gathering = self._gathering
        return gathering.order.identifier if gathering is not None and gathering.is_done else ""

    def follow(self, orders: Orders, neighbours: Neighbours, means: Means | None) -> None:
        """Start and cut. `means` None: no attempt runs, so nothing may go on."""
        self._neighbours = neighbours
        if means is None or orders.plan is None:
            self.cut()
            return
        if means.own != self._own:  # also where the store was emptied, and given another key
            self.cut()
            self._own = means.own
        order = orders.peer
        self._gather(order, orders.plan, means)
        self._follow(order, orders.plan, means)
        self._fetch(orders.plan, means)
        self._tidy(order, orders.plan)

    def cut(self) -> None:
        """End everything."""
        if self._gathering is not None and not self._gathering.is_done:
            self._gathering.cut()
            self._gathering = None
        for following in self._following.values():
            following.cut()
        self._following.clear()
        if self._fetching is not None:
            self._fetching.cut()
            self._fetching = None

    def _gather(self, order: PeerOrder | None, plan: Plan, means: Means) -> None:
        if order is None or order.state == "standing":
            return
        running = self._gathering
        is_new = running is None or _name(running.order) != _name(order)
        if running is not None and (is_new or order.state != "armed"):
            running.cut()
        sources = self._sources(order)
        if order.state != "armed" or not is_new or not sources:
            return
        ranks = {source: ranks_of(plan, source) for source in sources}
        gathering = Gathering(order, ranks, self._partner, means, self._wake)
        self._gathering = gathering if gathering.start() else None

    def _follow(self, order: PeerOrder | None, plan: Plan, means: Means) -> None:
        wanted = set()
        if order is not None and order.state == "standing":
            for source in self._sources(order):
                partner = self._neighbours.partner(source)
                if partner is not None:
                    ranks = ranks_of(plan, source)
                    wanted |= {Followed(partner, rank, order.attempt) for rank in ranks}
        for gone in self._following.keys() - wanted:
            self._following.pop(gone).cut()
        for new in wanted - self._following.keys():
            following = Following(new, means, self._existing(new.attempt))
            if following.start():
                self._following[new] = following

    def _existing(self, attempt: int) -> Callable[[], int]:
        return lambda: self._neighbours.existing(attempt)

    def _sources(self, order: PeerOrder) -> list[str]:
        return sorted(source for source, holder in order.pulls.items() if holder == self._node)

    def _fetch(self, plan: Plan, means: Means) -> None:
        candidate = next((c for c in plan.resume if c.tier == "snapshot"), None)
        if plan.state != "running" or candidate is None or self._fetching is not None:
            return
        here = ranks_of(plan, self._node)
        fetches = {int(r): node for r, node in candidate.fetches.items() if int(r) in here}
        if not fetches or marker_path(self._shm, plan.attempt).exists():
            return
        fetching = Fetching(self._shm, fetches, self._partner, means, candidate.step)
        if fetching.start():
            self._fetching = fetching

    def _partner(self, node: str) -> Partner:
        """As it can be called now; raises OSError where it can't. Threads ask, too."""
        partner = self._neighbours.partner(node)
        if partner is None:
            raise ConnectionRefusedError(f"node {node} does not listen")
        return partner

    def _tidy(self, order: PeerOrder | None, plan: Plan) -> None:
        """Copies that nobody may resume from are torn; those that others have newer, removed."""
        present = {int(rank) for rank in self.copies.steps()}
        if not present:
            return
        if self.copies.has_others_than(plan.attempt):
            resumed = self._neighbours.resumed_step(plan.attempt)
            gone = self.copies.clear(lambda copy: is_abandoned(copy, plan, resumed))
            if gone:
                log.info("forgot copies of steps %s: this attempt began before them", sorted(gone))
        if order is None:
            return
        own = {rank for source in self._sources(order) for rank in ranks_of(plan, source)}
        if strangers := present - own:
            elsewhere = self._neighbours.newest_copies_elsewhere()
            for rank in strangers:
                if elsewhere.get(rank, -1) >= self.copies.newest(rank):
                    self.copies.remove(rank)


def _name(order: PeerOrder) -> tuple[str, int]:
    """Its step too: it is another one where gradients waited at the one that was armed."""
    return order.identifier, order.step
