"""Peer copies in step: pulls every snapshot of one rank of another node as soon as it is sealed,
and confirms each, for which that rank waits.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.contract.snapshot_file import OWN_DIRECTORY
from holdfast_sidecar.checkpoint.replication.fetch import (
    FAILURES,
    Fetching,
    Neighbours,
    TransferContext,
    marker_path,
    pause_s,
)
from holdfast_sidecar.checkpoint.replication.slots import Copies, Expected, SlotInUse
from holdfast_sidecar.checkpoint.replication.transfer import (
    Partial,
    Partner,
    Sealed,
    SlotServer,
    connected,
)
from holdfast_sidecar.checkpoint.replication.wire import CancelToken, PeerCredentials
from holdfast_sidecar.linux.threads import start_thread
from holdfast_sidecar.policy.replication import Copy, is_abandoned, ranks_of
from holdfast_sidecar.records.checkpoint import PeerOrder
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.store.orders import Orders

log = logging.getLogger(__name__)

FULL_S = 0.05
"""Between looks whether a file may be overwritten, once none may: who knows of a newer snapshot
that exists says so within a heartbeat."""


@dataclass(frozen=True)
class ReplicaSource:
    """Whom to follow."""

    partner: Partner
    rank: int
    attempt: int


class Following:
    """One rank's copies, in a thread of its own from `start` until cut."""

    def __init__(
        self, followed: ReplicaSource, means: TransferContext, existing: Callable[[], int]
    ) -> None:
        """`existing`: newest step of this attempt that some node reported to exist on all ranks."""
        self._followed = followed
        self._means = means
        self._existing = existing
        self._lifeline = CancelToken()
        self._partial = Partial()

    def start(self) -> bool:
        """Begin; False where no thread is left."""
        return start_thread(self._run, "peer-follow") is not None

    def cut(self) -> None:
        """Leave it; a half copy stays torn."""
        self._lifeline.cut()

    def _run(self) -> None:
        try:
            self._follow_on()
        finally:
            self._partial.close()

    def _follow_on(self) -> None:
        failures = 0
        while not self._lifeline.is_cut:
            try:
                with connected(self._followed.partner, self._means.own, self._lifeline) as source:
                    failures = 0
                    self._follow(source)
            except FAILURES as error:
                if self._lifeline.is_cut:
                    return
                log.info("can't follow rank %d: %s", self._followed.rank, error)
                self._means.tally.failed()
                self._lifeline.wait(pause_s(failures))
                failures += 1

    def _follow(self, source: SlotServer) -> None:
        rank, attempt = self._followed.rank, self._followed.attempt
        newest = self._means.copies.newest(rank, attempt)
        if newest >= 0:  # a sidecar that was restarted, or a connection that broke before this
            source.confirm(rank, attempt, newest)
        while not self._lifeline.is_cut:
            sealed = source.newer(rank, attempt, newest)
            if sealed is not None and self._bring(source, sealed):
                newest = sealed.step
                source.confirm(rank, attempt, newest)

    def _bring(self, source: SlotServer, sealed: Sealed) -> bool:
        rank, attempt = self._followed.rank, self._followed.attempt
        path = self._room(sealed.existing, sealed.settled) or self._room(self._existing())
        if path is None:
            self._lifeline.wait(FULL_S)
            return False
        expected = Expected(self._means.own.job, rank, attempt, sealed.step)
        flow = self._means.flow(self._lifeline)
        return self._means.pull(source, OWN_DIRECTORY, path, expected, flow, self._partial)

    def _room(self, existing: int, settled: int = -1) -> Path | None:
        rank, attempt = self._followed.rank, self._followed.attempt
        return self._means.copies.next_path(
            rank, attempt, existing, settled=settled, may_be_newest=True
        )


# One peer order carried out by a node that pulls: every rank of its sources, at the armed step.

STREAMS = 2
"""At once from each source: one hashes while the other waits, and no more cores than that are
taken from training."""


class ReplicaPull:
    """Runs in threads of its own from `start` until done or cut."""

    def __init__(
        self,
        order: PeerOrder,
        sources: Mapping[str, Sequence[int]],
        partner: Callable[[str], Partner],
        means: TransferContext,
        wake: Callable[[], None],
    ) -> None:
        """sources: node -> its ranks. partner: how to call a node now (raises OSError)."""
        self.order = order
        self._sources = dict(sources)
        self._partner = partner
        self._means = means
        self._wake = wake
        self._lifeline = CancelToken()
        self._left = sum(map(len, self._sources.values()))
        self._lock = threading.Lock()

    @property
    def is_done(self) -> bool:
        """Whether every copy is here, whole."""
        return self._left == 0

    def start(self) -> bool:
        """Begin; False where no thread is left for some node."""
        for node, present in self._sources.items():
            ranks: queue.SimpleQueue[int] = queue.SimpleQueue()
            for rank in present:
                ranks.put(rank)
            streams = range(min(STREAMS, len(present)))
            started = [start_thread(self._work, "peer-pull", (node, ranks)) for _ in streams]
            if not any(started) and present:
                self.cut()
                return False
        return True

    def cut(self) -> None:
        """Leave it; what is half done stays torn."""
        self._lifeline.cut()

    def _work(self, node: str, ranks: queue.SimpleQueue[int]) -> None:
        failures, partial, in_hand = 0, Partial(), _InHand(ranks)
        try:
            while not self._lifeline.is_cut and not in_hand.is_empty():
                try:
                    partner = self._partner(node)  # a sidecar that was restarted listens elsewhere
                    with connected(partner, self._means.own, self._lifeline) as source:
                        self._gather(source, in_hand, partial)
                except FAILURES as error:
                    if self._lifeline.is_cut:
                        return
                    log.info("can't copy from node %s, trying again: %s", node, error)
                    self._means.tally.failed()
                    if not partial.received:  # the other stream may have better luck with it
                        in_hand.put_back()
                    self._lifeline.wait(pause_s(failures))
                    failures += 1
        finally:
            in_hand.put_back()
            partial.close()

    def _gather(self, source: SlotServer, in_hand: _InHand, partial: Partial) -> None:
        while not self._lifeline.is_cut and (rank := in_hand.take()) is not None:
            if self._bring(source, rank, partial):
                in_hand.done()
                self._count_down()
            else:
                in_hand.put_back()

    def _bring(self, source: SlotServer, rank: int, partial: Partial) -> bool:
        order, copies = self.order, self._means.copies
        if copies.has(rank, Copy(order.attempt, order.step)):
            return True
        path = copies.next_path(rank, order.attempt, order.through, may_be_newest=False)
        if path is None:
            raise SlotInUse
        expected = Expected(self._means.own.job, rank, order.attempt, order.step)
        flow = self._means.flow(self._lifeline)
        return self._means.pull(source, OWN_DIRECTORY, path, expected, flow, partial)

    def _count_down(self) -> None:
        with self._lock:
            self._left -= 1
        if self.is_done:
            self._wake()


class _InHand:
    """The rank that one stream works on, of those that are left for all of them."""

    def __init__(self, left: queue.SimpleQueue[int]) -> None:
        self._left = left
        self._rank: int | None = None

    def is_empty(self) -> bool:
        """Whether nothing is in hand, and none is left."""
        return self._rank is None and self._left.empty()

    def take(self) -> int | None:
        """The one in hand, else the next; None: there is none."""
        if self._rank is None:
            with contextlib.suppress(queue.Empty):
                self._rank = self._left.get_nowait()
        return self._rank

    def put_back(self) -> None:
        """Leave it to whoever comes next, if there is one."""
        if self._rank is not None:
            self._left.put(self._rank)
            self._rank = None

    def done(self) -> None:
        """It is here."""
        self._rank = None


# The transfers that go on at this node, kept to what the orders say: what is wanted is started,
# what no longer is wanted is cut.


class Transfers:
    """Looked after at every tick; the transfers have threads of their own."""

    def __init__(self, node: str, shm: Path, wake: Callable[[], None]) -> None:
        self._node = node
        self._shm = shm
        self._wake = wake
        self._gathering: ReplicaPull | None = None
        self._following: dict[ReplicaSource, Following] = {}
        self._fetching: Fetching | None = None
        self._own: PeerCredentials | None = None
        self._neighbours = Neighbours(node)
        self.copies = Copies(shm)

    @property
    def pulled(self) -> str:
        """Identifier of the newest peer order whose copies are all here; empty: none."""
        gathering = self._gathering
        return gathering.order.identifier if gathering is not None and gathering.is_done else ""

    def follow(self, orders: Orders, neighbours: Neighbours, means: TransferContext | None) -> None:
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

    def _gather(self, order: PeerOrder | None, plan: Plan, means: TransferContext) -> None:
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
        gathering = ReplicaPull(order, ranks, self._partner, means, self._wake)
        self._gathering = gathering if gathering.start() else None

    def _follow(self, order: PeerOrder | None, plan: Plan, means: TransferContext) -> None:
        wanted = set()
        if order is not None and order.state == "standing":
            for source in self._sources(order):
                partner = self._neighbours.partner(source)
                if partner is not None:
                    ranks = ranks_of(plan, source)
                    wanted |= {ReplicaSource(partner, rank, order.attempt) for rank in ranks}
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

    def _fetch(self, plan: Plan, means: TransferContext) -> None:
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
