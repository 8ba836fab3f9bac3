"""One peer order carried out by a node that pulls: every rank of its sources, at the armed step."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence

from holdfast.snapshot_file import OWN_DIRECTORY
from holdfast_sidecar.decisions.peering import Copy
from holdfast_sidecar.peers.lifeline import Lifeline
from holdfast_sidecar.peers.means import FAILURES, Means, pause_s
from holdfast_sidecar.peers.slot_copy import Expected, SlotBusy
from holdfast_sidecar.peers.source import Partner, Source, connected
from holdfast_sidecar.records.snapshot import PeerOrder

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

    def start(self) -> None:
        """Begin."""
        for node, present in self._sources.items():
            ranks: queue.SimpleQueue[int] = queue.SimpleQueue()
            for rank in present:
                ranks.put(rank)
            for _ in range(min(STREAMS, len(present))):
                threading.Thread(
                    target=self._work, args=(node, ranks), name="peer-pull", daemon=True
                ).start()

    def cut(self) -> None:
        """Leave it; what is half done stays torn."""
        self._lifeline.cut()

    def _work(self, node: str, ranks: queue.SimpleQueue[int]) -> None:
        failures = 0
        while not self._lifeline.is_cut and not ranks.empty():
            try:
                partner = self._partner(node)  # a sidecar that was restarted listens elsewhere
                with connected(partner, self._means.own, self._lifeline) as source:
                    self._gather(source, ranks)
            except FAILURES as error:
                if self._lifeline.is_cut:
                    return
                log.info("can't copy from node %s, trying again: %s", node, error)
                self._means.tally.failed()
                self._lifeline.wait(pause_s(failures))
                failures += 1

    def _gather(self, source: Source, ranks: queue.SimpleQueue[int]) -> None:
        while not self._lifeline.is_cut:
            try:
                rank = ranks.get_nowait()
            except queue.Empty:
                return
            is_here = False
            try:
                is_here = self._bring(source, rank)
            finally:
                if not is_here:
                    ranks.put(rank)
            if is_here:
                self._count_down()

    def _bring(self, source: Source, rank: int) -> bool:
        order, copies = self.order, self._means.copies
        if copies.has(rank, Copy(order.attempt, order.step)):
            return True
        path = copies.next_path(rank, order.attempt, order.through, may_be_newest=False)
        if path is None:
            raise SlotBusy
        expected = Expected(self._means.own.job, rank, order.attempt, order.step)
        return self._means.pull(source, OWN_DIRECTORY, path, expected, self._lifeline)

    def _count_down(self) -> None:
        with self._lock:
            self._left -= 1
        if self.is_done:
            self._wake()
