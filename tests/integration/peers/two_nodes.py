"""Nodes with real servers, files and pages, without Redis: what was agreed is what a test says."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.unit.checkpoint.replication.slots import JOB, write_slot
from tests.unit.pretend_pages import set_word, write_page

from holdfast.contract import page
from holdfast_sidecar.checkpoint.replication.component import NodePeers
from holdfast_sidecar.config.settings import SnapshotSettings
from holdfast_sidecar.ranks.ending import ActionRunner
from holdfast_sidecar.ranks.observation import RankLook
from holdfast_sidecar.ranks.page import Pages
from holdfast_sidecar.records.checkpoint import AttemptKey, PeerOrder, SnapshotReport
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import Candidate, Member, Plan
from holdfast_sidecar.records.reports import AgentReport, NodeReport, RankReport
from holdfast_sidecar.store.orders import Orders
from holdfast_sidecar.store.protocol import Lease, Section, View

SECRET = "5e" * 32
PATIENCE_S = 20.0


@dataclass
class Node:
    """One node's files and its part in the peer tier."""

    name: str
    ranks: tuple[int, ...]
    shm: Path
    peers: NodePeers
    pages: Pages
    report: SnapshotReport | None = None

    def looks(self) -> list[RankLook]:
        """Its ranks as the loop sees them."""
        self.pages.refresh()
        return [
            RankLook(held.identity, time.monotonic(), page.parse_words(held.read()), is_gone=False)
            for held in self.pages.held()
        ]

    def seal(self, rank: int, slot: int, step: int, attempt: int, data: bytes) -> None:
        """What a rank does at a boundary, seen from outside."""
        write_slot(self.shm, rank, slot, step, attempt, data)
        local = self.ranks.index(rank)
        path = self.shm / page.page_name(attempt, local)
        set_word(path, page.Word.SNAPSHOT_SEALED, step + 1)

    def order(self, kind: page.OrderKind, rank: int | None = None) -> page.Order | None:
        """What its (first) rank finds in its page."""
        self.pages.refresh()
        for held in self.pages.held():
            if rank is None or held.identity.rank == rank:
                return held.read_order(kind)
        return None


@dataclass
class TwoNodes:
    """A job of some nodes; `tick` lets each look at what was agreed."""

    folder: Path
    settings: SnapshotSettings
    ranks: dict[str, tuple[int, ...]]
    attempt: int = 0
    order: PeerOrder | None = None
    resume: list[Candidate] = field(default_factory=list)
    state: str = "running"
    rank_reports: list[RankReport] = field(default_factory=list)
    nodes: dict[str, Node] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    """Node -> key that it takes for the attempt's, where that is not the right one."""
    told_address: dict[str, str] = field(default_factory=dict)
    """Node -> where it is said to listen, where that is not the truth."""
    down: set[str] = field(default_factory=set)
    """Nodes whose sidecar is gone, and its last report still there."""
    woken: threading.Event = field(default_factory=threading.Event)

    machine: Callable[[str], str] = lambda name: "this one"

    def __post_init__(self) -> None:
        for name, ranks in self.ranks.items():
            shm = self.folder / name
            shm.mkdir()
            for local, rank in enumerate(ranks):
                write_page(shm, self.attempt, local, rank=rank)
            pages = Pages(shm)
            peers = NodePeers(name, JOB, shm, self.settings, pages, ActionRunner(), self.woken.set)
            self.nodes[name] = Node(name, ranks, shm, peers, pages)
        wanted, self.resume = self.resume, []
        self.tick()  # everyone's address is known before anything is wanted
        self.resume = wanted

    @property
    def plan(self) -> Plan:
        members = [
            Member(name, "i", index, ranks[0], len(ranks))
            for index, (name, ranks) in enumerate(self.ranks.items())
            if ranks
        ]
        world = sum(map(len, self.ranks.values()))
        return Plan(self.attempt, 1, self.state, members, world, self.resume)

    def tick(self) -> None:
        """Every node looks once."""
        reports = {node.name: encode(self._report(node)) for node in self.nodes.values()}
        agents = {
            name: encode(
                AgentReport(
                    name, "i", "running", 0, 1, 1, "127.0.0.1", 1, 2, machine=self.machine(name)
                )
            )
            for name in self.nodes
        }
        view = View(Lease(1, ""), "", {Section.NODES: reports, Section.AGENTS: agents})
        for node in self.nodes.values():
            if node.name in self.down:
                continue
            key = AttemptKey(self.attempt, self.secrets.get(node.name, SECRET))
            orders = Orders(self.plan, peer=self.order, key=key, store_up=True, view=view)
            now_s = time.monotonic()
            node.report = node.peers.follow(orders, node.looks(), SnapshotReport(), now_s)

    def kill(self, name: str) -> None:
        """End a node's sidecar."""
        self.down.add(name)
        self.nodes[name].peers.close()

    def revive(self, name: str) -> None:
        """Start it again: it knows what lies on disk, and listens somewhere else."""
        self.down.discard(name)
        node = self.nodes[name]
        node.peers = NodePeers(
            name, JOB, node.shm, self.settings, node.pages, ActionRunner(), self.woken.set
        )

    def _report(self, node: Node) -> NodeReport:
        snapshot = node.report
        if snapshot is not None and node.name in self.told_address:
            snapshot = replace(snapshot, peer_address=self.told_address[node.name])
        ranks = self.rank_reports
        return NodeReport(
            node.name, "i", 1, 0, 1, self.attempt, True, ranks=ranks, snapshot=snapshot
        )

    def until(self, done: Callable[[], object], what: str = "it") -> None:
        """Tick until it is so."""
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < deadline, f"{what} did not come about"
            self.woken.wait(0.02)
            self.woken.clear()
            self.tick()

    def close(self) -> None:
        """End everything."""
        for node in self.nodes.values():
            node.peers.close()
            node.pages.close()


def standing(pulls: dict[str, str], attempt: int = 0) -> PeerOrder:
    """Copies in step."""
    return PeerOrder("s1", attempt, 1, -1, "standing", 60.0, pulls)


def armed(step: int, pulls: dict[str, str], through: int = -1, attempt: int = 0) -> PeerOrder:
    """One order."""
    return PeerOrder(f"p{step}", attempt, 1, step, "armed", 60.0, pulls, through=through)
