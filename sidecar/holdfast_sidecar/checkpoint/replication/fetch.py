"""Before an attempt resumes: brings the copies of this node's ranks from the nodes that hold them
into the ranks' own slots, and leaves word for the ranks, who wait for it.

Training stands still meanwhile: all ranks are served at once and without the cap that copies have
while it goes on. The step that the leader expects comes first, for every rank.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.contract.owned import owned_file
from holdfast.contract.removing import unlink
from holdfast.contract.snapshot_file import (
    FETCHED_PREFIX,
    FETCHED_WITHIN_S,
    OWN_DIRECTORY,
    fetched_name,
    slot_name,
)
from holdfast_sidecar.checkpoint.replication.slots import Copies, Expected, SlotInUse, read_slots
from holdfast_sidecar.checkpoint.replication.transfer import (
    Flow,
    GivenUp,
    Partial,
    Partner,
    Sealed,
    SlotServer,
    connected,
)
from holdfast_sidecar.checkpoint.replication.wire import (
    CancelToken,
    PeerCredentials,
    ProtocolError,
    Throttle,
)
from holdfast_sidecar.checkpoint.snapshot.files import NAMED
from holdfast_sidecar.checkpoint.snapshot.memory import SlotMemory
from holdfast_sidecar.linux.threads import start_thread
from holdfast_sidecar.policy.replication import Copy
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.reports import AgentReport, NodeReport, RankReport
from holdfast_sidecar.store.orders import Orders
from holdfast_sidecar.store.protocol import Section

log = logging.getLogger(__name__)


# What this node's sidecar sent and received for peer copies since it started, for metrics.


@dataclass(frozen=True)
class PeerCounts:
    """Counters; `seconds` is time spent receiving, all connections added up."""

    received_bytes: int = 0
    sent_bytes: int = 0
    seconds: float = 0.0
    copies: int = 0
    failures: int = 0
    refused: int = 0


@dataclass
class TransferCounts:
    """Counts from any thread."""

    _counts: PeerCounts = field(default_factory=PeerCounts)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def received(self, size: int, seconds: float) -> None:
        """A whole copy came in."""
        self._add(received_bytes=size, seconds=seconds, copies=1)

    def sent(self, size: int) -> None:
        """A slot was sent."""
        self._add(sent_bytes=size)

    def failed(self) -> None:
        """A transfer broke off, or its node could not be reached."""
        self._add(failures=1)

    def read(self, refused: int) -> PeerCounts:
        """What was counted so far; `refused` is the server's own count."""
        with self._lock:
            return dataclasses.replace(self._counts, refused=refused)

    def _add(self, **more: float) -> None:
        with self._lock:
            sums = {name: getattr(self._counts, name) + value for name, value in more.items()}
            self._counts = dataclasses.replace(self._counts, **sums)


# What every kind of transfer needs: who asks, where copies go, how fast, and who counts.

FAILURES = (OSError, ProtocolError, SlotInUse, GivenUp)
"""What a transfer may end with; the other node, the network and our own memory are all in it."""

AGAIN_S = 0.2
LONGEST_AGAIN_S = 2.0


@dataclass(frozen=True)
class TransferContext:
    """Shared by the transfers of one attempt."""

    own: PeerCredentials
    copies: Copies
    throttle: Throttle
    tally: TransferCounts
    memory: SlotMemory = NAMED

    @property
    def attempt(self) -> int:
        """The attempt that it belongs to."""
        return self.own.attempt

    def pull(
        self,
        source: SlotServer,
        room: str,
        path: Path,
        expected: Expected,
        flow: Flow,
        partial: Partial,
    ) -> bool:
        """Have one slot sent to `path`; False when it is not there (yet). Raises FAILURES.

        partial: what came of it over earlier connections.
        """
        started_s = time.monotonic()
        size = source.pull(room, path, expected, flow, partial)
        if size is None:
            return False
        self.tally.received(size, time.monotonic() - started_s)
        return True

    def flow(
        self, lifeline: CancelToken, *, is_capped: bool = True, until_s: float = math.inf
    ) -> Flow:
        """What a transfer keeps to. is_capped: within `snapshot.peer_bandwidth`, which leaves the
        network to the training."""
        return Flow(self.throttle if is_capped else None, lifeline, self.memory, until_s)


def pause_s(failures: int) -> float:
    """How long to leave another node alone after so many failures in a row."""
    return min(AGAIN_S * 2.0 ** min(failures, 10), LONGEST_AGAIN_S)


UNREACHED_S = 30.0
"""For a holder that can't be reached or breaks off, from the first failure after which nothing more
came: its sidecar may just be starting again. What was being sent until then took its own time."""

SPARE_S = 30.0
"""For the next best step of each rank, which is seldom needed: its ranks could go on by now."""

WORD_AGAIN_S = 0.5
"""Between tries to leave word where there is no room for it: the ranks wait for nothing else."""

WORD_BYTES = 4096
"""Reserved for it before the copies take what room there is."""

MOST_REASON = 500
"""Characters of a reason: in JSON no more bytes than are reserved."""

MOST_AT_ONCE = 16
"""Ranks served at once. A stream hashes some GB/s on a core; a node has 8 or 16 ranks."""

MOST_FETCHED = 2
"""As many as there are copies; one of them was through, or both are."""


def marker_path(shm: Path, attempt: int) -> Path:
    """Where the ranks of an attempt look for word of what was fetched."""
    return shm / fetched_name(attempt)


class Fetching:
    """All of one node's fetches for one attempt, in a thread of its own."""

    def __init__(
        self,
        shm: Path,
        holders: Mapping[int, str],
        partner: Callable[[str], Partner],
        means: TransferContext,
        guess: int = -1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """holders: rank of this node -> node that has its copies. partner: how to call a node now
        (raises OSError). guess: the step that the leader expects all ranks to have; -1: none."""
        self._shm = shm
        self._holders = dict(holders)
        self._partner = partner
        self._means = means
        self._guess = guess
        self._clock = clock
        self._lifeline = CancelToken()

    def start(self) -> bool:
        """Begin; False where no thread is left."""
        return start_thread(self.run, "peer-fetch") is not None

    def cut(self) -> None:
        """Leave it: the attempt is over."""
        self._lifeline.cut()

    def run(self) -> None:
        """Fetch everything, then leave word."""
        started_s = self._clock()
        word = FetchWord(self._shm, self._means.attempt)
        word.reserve()
        reasons = self._fetch_each(1, UNREACHED_S, started_s + FETCHED_WITHIN_S)
        if not reasons and not self._lifeline.is_cut:
            # The next best, should the leader have expected another step than all ranks have.
            self._fetch_each(MOST_FETCHED, 0.0, self._clock() + SPARE_S)
        took_s = self._clock() - started_s
        while not self._lifeline.is_cut and not word.leave("; ".join(reasons)):
            self._lifeline.wait(WORD_AGAIN_S)
        if self._lifeline.is_cut:
            word.withdraw()
            return
        ranks = ", ".join(str(rank) for rank in sorted(self._holders))
        outcome = "; ".join(reasons) or "done"
        log.info("fetched snapshots of ranks %s in %.2f s: %s", ranks, took_s, outcome)

    def _fetch_each(self, most: int, patience_s: float, until_s: float) -> list[str]:
        """So many steps of every rank; why some have none."""

        def fetch(rank: int) -> str:
            partial = Partial()
            try:
                reason = self._fetch_patiently(rank, most, patience_s, until_s, partial)
            finally:
                partial.close()
            return f"rank {rank}: {reason}" if reason else ""

        ranks = sorted(self._holders)
        try:
            with ThreadPoolExecutor(min(MOST_AT_ONCE, len(ranks)), "peer-fetch") as pool:
                return [reason for reason in pool.map(fetch, ranks) if reason]
        except RuntimeError:  # no thread is left: what is here by now is not fetched again
            return [reason for rank in ranks if (reason := fetch(rank))]

    def _fetch_patiently(
        self, rank: int, most: int, patience_s: float, until_s: float, partial: Partial
    ) -> str:
        """Why this rank has none of its copies now; empty when it has."""
        node, failures, failing_since_s = self._holders[rank], 0, math.inf
        furthest = 0
        while True:
            try:
                with connected(self._partner(node), self._means.own, self._lifeline) as source:
                    return self._fetch(source, rank, most, until_s, partial)
            except FAILURES as error:
                self._means.tally.failed()
                now_s = self._clock()
                if partial.received > furthest:  # slow, and it comes on
                    furthest, failures, failing_since_s = partial.received, 0, now_s
                failing_since_s = min(failing_since_s, now_s)
                is_over = now_s - failing_since_s >= patience_s or now_s >= until_s
                if self._lifeline.is_cut or is_over:
                    return f"node {node}: {error or type(error).__name__}"
            self._lifeline.wait(pause_s(failures))
            failures += 1

    def _fetch(
        self, source: SlotServer, rank: int, most: int, until_s: float, partial: Partial
    ) -> str:
        """Bring the likeliest steps: which of them all ranks have is for the ranks to say."""
        offered = sorted(source.has(rank), key=self._likelihood, reverse=True)[:MOST_FETCHED]
        wanted = {Copy(one.attempt, one.step): one for one in offered}
        flow = self._means.flow(self._lifeline, is_capped=False, until_s=until_s)
        brought = 0
        for copy, one in list(wanted.items())[:most]:
            expected = Expected(self._means.own.job, rank, copy.attempt, copy.step)
            path = partial.path_of(expected) or self._room_for(rank, copy, wanted.keys())
            if path is None:
                brought += 1
                continue
            brought += self._means.pull(source, one.room, path, expected, flow, partial)
        return "" if brought else "the node that should have it has none of its steps"

    def _likelihood(self, sealed: Sealed) -> tuple[bool, int, int]:
        return sealed.step == self._guess, sealed.attempt, sealed.step

    def _room_for(self, rank: int, copy: Copy, wanted: Collection[Copy]) -> Path | None:
        """An own slot that holds none of what is wanted: a torn one, a new one, or the oldest.

        None: it is here already.
        """
        directory = self._shm / OWN_DIRECTORY
        slots = {slot.index: slot.header for slot in read_slots(directory, rank)}
        sealed = {
            index: Copy(header.attempt, header.step)
            for index, header in slots.items()
            if header.sealed_step is not None
        }
        if copy in sealed.values():
            return None
        free = sorted(slots.keys() - sealed.keys())
        if not free and len(slots) < MOST_FETCHED:
            free = sorted(set(range(MOST_FETCHED)) - slots.keys())
        others = [index for index in sealed if sealed[index] not in wanted]
        free += sorted(others, key=lambda index: (sealed[index].attempt, sealed[index].step))
        return directory / slot_name(rank, free[0])


class FetchWord:
    """For the ranks of an attempt: that all is here, or why not."""

    def __init__(self, shm: Path, attempt: int) -> None:
        self._path = marker_path(shm, attempt)
        self._temporary = self._path.with_name(f".{self._path.name}.writing")
        self._has_failed = False

    def reserve(self) -> None:
        """Take the room for it before the copies do."""
        with contextlib.suppress(OSError):  # there is room later, or it is tried again
            self._temporary.write_bytes(bytes(WORD_BYTES))

    def leave(self, reason: str) -> bool:
        """Say it (no reason: all is here), and forget earlier ones; False where there is no room
        for it."""
        told = json.dumps({"ok": not reason, "reason": reason[:MOST_REASON]}).encode()
        try:
            # Into what is reserved, which a file that is cut first would give back.
            descriptor = os.open(self._temporary, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "r+b") as file:
                file.write(told)
                file.truncate()
            self._temporary.replace(self._path)
        except OSError as error:
            if not self._has_failed:
                log.warning("can't leave word of what was fetched, trying again: %s", error)
            self._has_failed = True
            return False
        for other in self._path.parent.glob(f"{FETCHED_PREFIX}*"):
            if other != self._path:
                with contextlib.suppress(OSError):
                    unlink(owned_file(other), missing_ok=True)
        return True

    def withdraw(self) -> None:
        """Give the room back."""
        with contextlib.suppress(OSError):
            unlink(owned_file(self._temporary), missing_ok=True)


# What the other nodes' sidecars reported, as far as peer copies need it; read only where asked.


@dataclass(frozen=True)
class Neighbours:
    """All nodes' reports as they came, by node."""

    own: str
    reports: Mapping[str, str] = field(default_factory=dict)
    agents: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(orders: Orders, own: str) -> Neighbours:
        """Those of the newest reading of the store."""
        if orders.view is None:
            return Neighbours(own)
        view = orders.view
        return Neighbours(own, view.section(Section.NODES), view.section(Section.AGENTS))

    @property
    def are_none(self) -> bool:
        """Whether this node is alone."""
        return not (self.reports.keys() - {self.own})

    @property
    def own_address(self) -> str:
        """Where other nodes reach this one, as its launcher says; empty: not known."""
        agent = decode(AgentReport, self.agents.get(self.own, ""))
        return "" if agent is None else agent.address

    @property
    def are_elsewhere(self) -> bool:
        """Whether some of them are on other machines."""
        agents = (decode(AgentReport, text) for text in self.agents.values())
        return len({agent.machine for agent in agents if agent is not None}) > 1

    def partner(self, node: str) -> Partner | None:
        """A node that can be called; None: it does not listen (yet)."""
        report = decode(NodeReport, self.reports.get(node, ""))
        if report is None or report.snapshot is None or not report.snapshot.peer_address:
            return None
        return Partner(node, report.snapshot.peer_address)

    def existing(self, attempt: int) -> int:
        """Newest step of this attempt that some node knows to exist on all ranks; -1: none."""
        return max(
            (
                report.snapshot.newest
                for report in self._all()
                if report.snapshot is not None and report.snapshot.attempt == attempt
            ),
            default=-1,
        )

    def resumed_step(self, attempt: int) -> int | None:
        """Where this attempt's ranks began; None: none of them has."""
        begun = (rank.resumed_step for rank in self._ranks(attempt) if rank.in_loop)
        return max(begun, default=None)

    def newest_copies_elsewhere(self) -> dict[int, int]:
        """Rank -> newest step of which another node than this has a copy."""
        newest: dict[int, int] = {}
        for report in self._all():
            if report.node == self.own or report.snapshot is None:
                continue
            for rank, steps in report.snapshot.copies.items():
                newest[int(rank)] = max([newest.get(int(rank), -1), *steps])
        return newest

    def _ranks(self, attempt: int) -> Iterator[RankReport]:
        for report in self._all():
            if report.attempt == attempt:
                yield from report.ranks

    def _all(self) -> Iterator[NodeReport]:
        for text in self.reports.values():
            report = decode(NodeReport, text)
            if report is not None:
                yield report
