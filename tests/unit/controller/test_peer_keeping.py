"""The leader's peer orders on a store in memory; what nodes report is what the test says."""

from __future__ import annotations

import dataclasses
import itertools
import logging
from dataclasses import dataclass, field

import pytest

from holdfast_sidecar.config.settings import Settings, SnapshotSettings
from holdfast_sidecar.controller.snapshots import PeerKeeping
from holdfast_sidecar.policy.cluster import Cluster, parse_cluster
from holdfast_sidecar.records.checkpoint import AttemptKey, PeerOrder, SnapshotOrder, SnapshotReport
from holdfast_sidecar.records.codec import decode, encode
from holdfast_sidecar.records.plan import Member, Plan
from holdfast_sidecar.records.reports import AgentReport, NodeReport, RankReport
from holdfast_sidecar.store.memory_store import MemoryServer, MemoryStore
from holdfast_sidecar.store.protocol import ALL_SECTIONS, CURRENT, OPEN_SECTIONS, Section

MEMBERS = [Member("a", "i", 0, 0, 1), Member("b", "i", 1, 1, 1)]
STEP_S = 0.5


@dataclass
class Job:
    """Two members and what they report."""

    settings: Settings = field(default_factory=Settings)
    plan: Plan = field(default_factory=lambda: Plan(0, 1, "running", MEMBERS, 2))
    step: int = 10
    reports: dict[str, SnapshotReport] = field(default_factory=dict)
    lost: dict[str, float] = field(default_factory=dict)
    machines: dict[str, str] = field(default_factory=dict)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.store = MemoryStore(MemoryServer(clock=lambda: 0.0))
        self.lease = self.store.campaign("a/i", 100.0, 0)
        names = itertools.count(1)
        self.keeping = PeerKeeping(self.store, self.settings, lambda: f"p{next(names)}")
        self.told(SnapshotOrder(0, 1, 1))
        for node in "ab":
            self.node(node)

    def told(self, order: SnapshotOrder) -> None:
        before = self.store.read().section(Section.SNAPSHOT).get(CURRENT)
        self.store.order(self.lease, Section.SNAPSHOT, CURRENT, encode(order), before)

    def node(self, name: str, **changes: object) -> None:
        """What a node reports of snapshots, from now on."""
        report = self.reports.get(name) or SnapshotReport(
            0, slots=4, copies_fit=True, peer_address=f"{name}:1"
        )
        self.reports[name] = dataclasses.replace(report, **changes)  # type: ignore[arg-type]

    def cluster(self) -> Cluster:
        for index, (name, snapshot) in enumerate(self.reports.items()):
            ranks = [RankReport(index, 0, 1, self.step, "forward", 0.1, STEP_S, STEP_S)]
            ranks = [dataclasses.replace(rank, state_registered=True) for rank in ranks]
            is_member = any(member.node == name for member in self.plan.members)
            node = NodeReport(
                name,
                "i",
                1,
                0,
                1,
                self.plan.attempt if is_member else -1,
                True,
                ranks=ranks if is_member else [],
                snapshot=snapshot,
            )
            agent = AgentReport(
                name, "i", "running", 0, 1, 1, name, 1, 2, machine=self.machines.get(name, "m")
            )
            self.store.report(Section.NODES, name, encode(node))
            self.store.report(Section.AGENTS, name, encode(agent))
        return dataclasses.replace(parse_cluster(self.store.read(ALL_SECTIONS)), lost=self.lost)

    def lead(self, seconds: float = 0.1) -> PeerOrder | None:
        """One exchange; the order that stands then."""
        self.now += seconds
        self.keeping.keep(self.lease, self.cluster(), self.plan, self.now)
        return self.order

    @property
    def order(self) -> PeerOrder | None:
        return decode(PeerOrder, self.store.read().section(Section.PEER).get(CURRENT, ""))

    def pull(self) -> None:
        """Every node says that it has what the order wants."""
        assert self.order is not None
        for name in set(self.order.pulls.values()):
            self.node(name, pulled=self.order.identifier)


def sync() -> Job:
    return Job(Settings(snapshot=SnapshotSettings(peer="sync")))


def test_one_order_after_another_each_ahead_of_all_ranks() -> None:
    job = Job()
    first = job.lead()
    assert first is not None
    assert (first.state, first.pulls, first.through) == ("armed", {"a": "b", "b": "a"}, -1)
    assert first.step > job.step
    assert job.lead() == first
    job.pull()
    job.step = first.step + 3
    second = job.lead()
    assert second is not None
    assert (second.state, second.through) == ("armed", first.step)
    assert second.step > job.step
    assert second.identifier != first.identifier


def test_what_is_through_is_said_also_while_nothing_new_can_be_armed() -> None:
    job = Job()
    first = job.lead()
    assert first is not None
    job.pull()
    job.told(SnapshotOrder(0, 1, 0, "they cost too much"))
    order = job.lead()
    assert order is not None
    assert (order.state, order.through) == ("complete", first.step)
    assert job.lead() == order


def test_steps_are_on_the_grid_of_snapshots() -> None:
    job = Job()
    job.told(SnapshotOrder(0, 1, 25))
    order = job.lead()
    assert order is not None
    assert order.step % 25 == 0


@pytest.mark.parametrize(
    "spoil",
    [
        lambda job: job.told(SnapshotOrder(0, 1, 0)),
        lambda job: job.told(SnapshotOrder(1, 1, 1)),
        lambda job: job.node("b", slots=1),
        lambda job: job.node("b", attempt=-1),
        lambda job: job.node("b", peer_address=""),
        lambda job: job.node("b", copies_fit=False),
        lambda job: job.reports.pop("b"),
    ],
    ids=[
        "no snapshots are taken",
        "their order is of another attempt",
        "a node has no slot to spare",
        "a node's ranks have not begun",
        "a node can't be called",
        "a node has no room for copies",
        "there is one node",
    ],
)
def test_nothing_is_armed_when(spoil: object) -> None:
    job = Job()
    spoil(job)  # type: ignore[operator]
    assert job.lead() is None


def test_a_spare_takes_the_place_of_a_node_without_room() -> None:
    job = Job()
    job.node("b", copies_fit=False)
    job.node("s", slots=0, copies_fit=False, attempt=-1)
    order = job.lead()
    assert order is not None
    assert order.pulls == {"a": "s", "b": "a"}


def test_a_node_whose_job_took_the_memory_of_its_snapshots_is_no_spare() -> None:
    job = Job()
    job.node("b", copies_fit=False)
    job.node("s", slots=0, copies_fit=False, attempt=-1, short_of="memory")
    assert job.lead() is None


def test_an_address_that_only_its_own_machine_reaches_is_none_for_others() -> None:
    job = Job()
    for node in "ab":
        job.node(node, peer_address="127.0.0.1:7000")
    job.machines = {"b": "another"}
    assert job.lead() is None
    for node in "ab":
        job.node(node, peer_address="[fd00::1]:7000")
    assert job.lead() is not None
    near = Job()
    for node in "ab":
        near.node(node, peer_address="[::1]:7000")
    assert near.lead() is not None, "two nodes on one machine"


def test_off_means_off_but_round_trips_have_their_key() -> None:
    job = Job(Settings(snapshot=SnapshotSettings(peer="off")))
    assert job.lead() is None
    assert job.cluster().peer is None
    assert job.cluster().key is not None


def test_a_late_order_is_tried_again_at_once_and_further_ahead() -> None:
    job = Job()
    first = job.lead()
    assert first is not None
    job.node("a", copied_for={first.identifier: "void"})
    void = job.lead()
    assert void is not None
    assert (void.state, void.came_too_late, void.failures) == ("void", True, 0)
    again = job.lead()
    assert again is not None
    assert again.state == "armed"
    assert again.step - job.step > first.step - job.step


def test_after_a_failure_the_next_order_waits_ever_longer() -> None:
    job = Job()
    pauses = []
    for failures in range(1, 9):
        order = job.lead()
        assert order is not None
        assert order.state == "armed"
        assert job.lead() == order
        void = job.lead(order.deadline_s + 1)
        assert void is not None
        assert (void.state, void.failures) == ("void", failures)
        waited = 0.0
        while job.order == void:
            job.lead(0.5)
            waited += 0.5
        pauses.append(waited)
    assert pauses == sorted(pauses)
    assert (pauses[0] <= 3, pauses[-1] <= 61) == (True, True)
    job.pull()
    order = job.lead()
    assert order is not None
    assert order.failures == 0


def test_a_lost_puller_voids_the_order_and_another_takes_its_place() -> None:
    job = Job()
    job.node("s", slots=0, attempt=-1)
    first = job.lead()
    assert first is not None
    assert first.pulls == {"a": "b", "b": "s"}
    job.lost = {"s": 3.0}
    void = job.lead()
    assert void is not None
    assert void.reason == "node s is lost"
    assert job.lead() == void
    order = job.lead(5.0)
    assert order is not None
    assert (order.state, order.pulls) == ("armed", {"a": "b", "b": "a"})


def test_an_order_of_an_earlier_attempt_is_none() -> None:
    job = Job()
    job.lead()
    job.plan = dataclasses.replace(job.plan, attempt=1)
    job.told(SnapshotOrder(1, 1, 1))
    for node in "ab":
        job.node(node, attempt=1)
    order = job.lead()
    assert order is not None
    assert (order.attempt, order.through) == (1, -1)


def test_in_step_the_pairs_stand_and_follow_the_nodes() -> None:
    job = sync()
    order = job.lead()
    assert order is not None
    assert (order.state, order.pulls) == ("standing", {"a": "b", "b": "a"})
    assert job.lead() == order
    job.node("s", slots=0, attempt=-1)
    assert job.lead() == order, "a spare changes nothing"
    job.lost = {"b": 2.0}
    order = job.lead()
    assert order is not None
    assert order.pulls == {"a": "s"}
    del job.reports["s"]
    job.lost = {"b": 2.0, "s": 2.0}
    order = job.lead()
    assert order is not None
    assert order.pulls == {}


def test_every_attempt_has_a_secret_of_its_own_and_the_end_takes_it_away() -> None:
    job = Job()
    job.lead()
    first = job.cluster().key
    job.lead()
    assert job.cluster().key == first
    job.plan = dataclasses.replace(job.plan, attempt=1)
    job.lead()
    second = job.cluster().key
    assert first is not None
    assert second is not None
    assert (first.attempt, second.attempt) == (0, 1)
    assert first.secret != second.secret
    assert len(bytes.fromhex(first.secret)) == 32
    job.keeping.conclude(job.lease, job.cluster())
    assert job.cluster().key is None


def test_the_secret_is_in_no_log_no_print_and_no_ordinary_reading(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    job = sync()
    job.lead()
    key = job.cluster().key
    assert key is not None
    assert key.secret in encode(key)
    assert key.secret not in repr(key) + str(key)
    assert key.secret not in repr(job.store.read())
    assert key.secret not in repr(dataclasses.replace(job.cluster(), key_text=None))
    assert key.secret not in caplog.text
    assert Section.KEY not in OPEN_SECTIONS
    assert set(OPEN_SECTIONS) | {Section.KEY} == set(ALL_SECTIONS)
    assert decode(AttemptKey, encode(key)) == key
