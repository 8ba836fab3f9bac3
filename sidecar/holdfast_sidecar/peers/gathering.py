"""One peer order carried out by a node that pulls: every rank of its sources, at the armed step."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence

from holdfast.snapshot_file import OWN_DIRECTORY
from holdfast_sidecar.linux.threads import start_thread
from holdfast_sidecar.peers.lifeline import Lifeline
from holdfast_sidecar.peers.means import FAILURES, Means, pause_s
from holdfast_sidecar.peers.slot_copy import Expected, SlotBusy
from holdfast_sidecar.peers.source import Partner, Source, connected
from holdfast_sidecar.peers.transfer import Partial
from holdfast_sidecar.policy.replication import Copy
from holdfast_sidecar.records.checkpoint import PeerOrder

log = logging.getLogger(__name__)

STREAMS = 2
"""At once from each source: one hashes while the other waits, and no more cores than that are
taken from training."""


class Gathering:
    """Runs in threads of its own from `start` until done or cut."""

    def __init__(
        self,
        order: PeerOrder,
        sources: Mapping[str, Sequence[int]],
        partner: Callable[[str], Partner],
        means: Means,
        wake: Callable[[], None],
    ) -> None:
        """sources: node -> its ranks. partner: how to call a node now (raises OSError)."""
        self.order = order
        self._sources = dict(sources)
        self._partner = partner
        self._means = means
        self._wake = wake
        self._lifeline = Lifeline()
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

    def _gather(self, source: Source, in_hand: _InHand, partial: Partial) -> None:
        while not self._lifeline.is_cut and (rank := in_hand.take()) is not None:
            if self._bring(source, rank, partial):
                in_hand.done()
                self._count_down()
            else:
                in_hand.put_back()

    def _bring(self, source: Source, rank: int, partial: Partial) -> bool:
        order, copies = self.order, self._means.copies
        if copies.has(rank, Copy(order.attempt, order.step)):
            return True
        path = copies.next_path(rank, order.attempt, order.through, may_be_newest=False)
        if path is None:
            raise SlotBusy
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
