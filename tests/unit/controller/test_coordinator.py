"""One node's exchanges with the store: epochs, fences, lifetimes, and errors of its own."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast_sidecar.config.settings import Settings, SidecarSettings
from holdfast_sidecar.controller.coordinator import Coordinator, NodeIdentity
from holdfast_sidecar.controller.fence import FenceFile
from holdfast_sidecar.policy.election import HANDOVER_S
from holdfast_sidecar.records.codec import decode, encode
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.records.reports import AgentReport, NodeReport
from holdfast_sidecar.records.steps import SlownessReport
from holdfast_sidecar.store.memory_store import MemoryServer, MemoryStore
from holdfast_sidecar.store.orders import LocalState
from holdfast_sidecar.store.protocol import (
    ENDED_TTL_S,
    RUNNING_TTL_S,
    Lease,
    Section,
    StoreUnavailable,
    View,
)

CALM = Settings(sidecar=SidecarSettings(heartbeat_s=0.1, node_timeout_s=1.0, lease_s=30.0))
QUICK = Settings(sidecar=SidecarSettings(heartbeat_s=0.01, node_timeout_s=1.0, lease_s=30.0))


class NoLeadership:
    """Leads nothing; notes under which leases it was asked to."""

    waiting = ""
    staying: Mapping[str, str] = {}
    slow_checkpoint = ""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self.leases: list[Lease] = []
        self._then = then

    def witness(self, view: View, *given: Any) -> View:
        return view

    def blink(self, *given: Any) -> None:
        pass

    def lead(self, lease: Lease, *given: Any) -> None:
        self.leases.append(lease)
        self._then()


def coordinator(
    folder: Path,
    store: MemoryStore,
    node: str = "a",
    leadership: NoLeadership | None = None,
    incarnation: str = "i",
    predecessor: str = "",
    settings: Settings = QUICK,
) -> Coordinator:
    return Coordinator(
        store,
        NodeIdentity(node, incarnation, 1, job="job", predecessor=predecessor),
        settings,
        leadership or NoLeadership(),  # type: ignore[arg-type]
        FenceFile(folder / node / "fence.json"),
    )


def test_an_epoch_whose_grant_a_failover_lost_is_not_granted_again(tmp_path: Path) -> None:
    server = MemoryServer()
    first, second = NoLeadership(), NoLeadership()
    one = coordinator(tmp_path, MemoryStore(server), "a", first)
    two = coordinator(tmp_path, MemoryStore(server), "b", second)
    one.exchange(0.0, 0.0)
    one.exchange(0.1, 0.1)
    server._jobs["job"].lease, server._jobs["job"].highest = Lease(0, ""), 0
    two.exchange(0.2, 0.2)
    assert {lease.epoch for lease in first.leases} == {1}
    assert second.leases
    assert all(lease.epoch > 1 for lease in second.leases)
    two.exchange(0.3, 0.3)
    assert len(set(second.leases)) == 1


def test_a_lease_lost_between_two_looks_is_not_led_by(tmp_path: Path) -> None:
    class Slipping(MemoryStore):
        campaigns = 0

        def campaign(self, candidate: str, lease_s: float, floor: int, deposed: str = "") -> Lease:
            self.campaigns += 1
            held = super().campaign(candidate, lease_s, floor, deposed)
            return held if self.campaigns == 1 else Lease(held.epoch, "b/i")

    server = MemoryServer()
    other = coordinator(tmp_path, MemoryStore(server), "b")
    other.exchange(0.0, 0.0)
    other.exchange(0.1, 0.1)
    server._jobs["job"].lease, server._jobs["job"].highest = Lease(0, ""), 0
    leadership = NoLeadership()
    slipping = coordinator(tmp_path, Slipping(server), "a", leadership)
    slipping.exchange(0.2, 0.2)
    assert leadership.leases == []
    assert not slipping.orders().is_leader


@pytest.mark.parametrize(
    ("max_nodes", "spares", "is_alone"), [(1, 0, True), (2, 0, False), (1, 1, False)]
)
def test_a_node_is_alone_where_its_launcher_never_takes_another_one(
    tmp_path: Path, max_nodes: int, spares: int, is_alone: bool
) -> None:
    store = MemoryStore(MemoryServer())
    agent = AgentReport("a", "a-1", "running", 0, 1, 1, "", 1, max_nodes, spares)
    one = coordinator(tmp_path, store)
    one.exchange(0.0, 0.0)
    assert not one.orders().is_alone
    store.report(Section.AGENTS, "a", encode(agent))
    one.exchange(0.1, 0.1)
    assert one.orders().is_alone == is_alone


def test_the_leader_reports_what_it_waits_for_and_a_deposed_one_nothing(tmp_path: Path) -> None:
    def told() -> str:
        report = decode(NodeReport, store.read().section(Section.NODES)["a"])
        assert report is not None
        return report.waiting

    leadership = NoLeadership()
    server = MemoryServer()
    store = MemoryStore(server)
    one = coordinator(tmp_path, store, leadership=leadership)
    leadership.waiting = "no node has joined yet"
    one.exchange(0.0, 0.0)
    one.exchange(0.1, 0.1)
    assert told() == "no node has joined yet"
    store.resign("a/i")
    store.campaign("b/i", 30.0, 0)
    one.exchange(0.2, 0.2)
    one.exchange(0.3, 0.3)
    assert told() == ""


def test_a_stale_plan_is_refused_and_said_to_be_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore(MemoryServer())
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "fence.json").write_text('{"attempt": 4, "epoch": 2}')
    one = coordinator(tmp_path, store)
    store.report(Section.PLAN, "current", encode(Plan(3, 1, "running")))
    with caplog.at_level(logging.WARNING):
        for second in range(3):
            one.exchange(second, second)
    assert one.orders().plan is None
    assert len([r for r in caplog.records if "stale plan" in r.getMessage()]) == 1


def test_lifetimes_are_refreshed_now_and_then_and_shortened_once_the_job_has_ended(
    tmp_path: Path,
) -> None:
    class Noting(MemoryStore):
        kept: Sequence[float] = ()

        def keep(self, ttl_s: float) -> None:
            self.kept = [*self.kept, ttl_s]

    store = Noting(MemoryServer())
    one = coordinator(tmp_path, store)
    for tenth in range(20):
        one.exchange(tenth / 10, 0.0)
    assert store.kept == [RUNNING_TTL_S]
    store.report(Section.PLAN, "current", encode(Plan(0, 9, "done")))
    for tenth in range(20, 40):
        one.exchange(tenth / 10, 0.0)
    assert store.kept == [RUNNING_TTL_S, ENDED_TTL_S]


def test_an_error_of_our_own_gives_the_lease_back_and_the_next_exchange_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore(MemoryServer())
    seen: list[Lease] = []
    done = threading.Event()

    def broken() -> None:
        seen.append(store.read().lease)
        if len(seen) < 4:
            raise RuntimeError("planted")
        done.set()

    one = coordinator(tmp_path, store, leadership=NoLeadership(broken))
    with caplog.at_level(logging.ERROR):
        one.start()
        assert done.wait(10)
        one.stop()
    assert not one.is_alive()
    assert len({lease.epoch for lease in seen[:4]}) == 4, "given back after each"
    assert len([r for r in caplog.records if "an exchange" in r.getMessage()]) == 1


@pytest.mark.parametrize("leads", [True, False])
def test_a_leader_that_leaves_hears_what_was_said_last(tmp_path: Path, leads: bool) -> None:
    store = MemoryStore(MemoryServer())
    if not leads:
        store.campaign("b/i", 30.0, 0)
    leadership = NoLeadership()
    one = coordinator(tmp_path, store, leadership=leadership)
    one.exchange(0.0, 0.0)
    before = len(leadership.leases)
    one._stopping.set()  # the thread begins and has to leave at once
    one.start()
    one.stop()
    assert len(leadership.leases) - before == int(leads)
    assert store.read().lease.candidate == ("" if leads else "b/i")


def test_a_leader_that_leaves_has_read_what_it_wrote_last(tmp_path: Path) -> None:
    store = MemoryStore(MemoryServer())
    leadership = NoLeadership(
        then=lambda: store.report(Section.INCIDENTS, "x", str(len(leadership.leases)))
    )
    one = coordinator(tmp_path, store, leadership=leadership)
    one.exchange(0.0, 0.0)
    one._stopping.set()  # as above
    one.start()
    one.stop()
    view = one.orders().view
    assert view is not None
    assert view.section(Section.INCIDENTS) == {"x": str(len(leadership.leases))}
    assert Section.KEY not in view.sections


def test_the_loop_is_handed_the_reports_as_they_were_parsed(tmp_path: Path) -> None:
    server = MemoryServer()
    one, two = (coordinator(tmp_path, MemoryStore(server), node) for node in "ab")
    one.exchange(0.0, 0.0)
    two.exchange(0.1, 0.1)
    view, nodes = two.orders().view, two.orders().nodes
    assert view is not None
    assert nodes is not None
    texts = view.section(Section.NODES)
    assert nodes == {node: decode(NodeReport, text) for node, text in texts.items()}
    assert set(nodes) == {"a", "b"}


def slow_told(store: MemoryStore, node: str = "a") -> SlownessReport | None:
    report = decode(NodeReport, store.read().section(Section.NODES)[node])
    assert report is not None
    return report.slow


def test_a_sidecar_that_starts_again_goes_on_telling_what_was_lost_to_who_is_slow(
    tmp_path: Path,
) -> None:
    store = MemoryStore(MemoryServer())
    before = SlownessReport(0, 8, 2, 5.0, watched_s=70.0)
    gone = NodeReport("a", "gone", 9, 0, 0, 0, True, slow=before)
    store.report(Section.NODES, "a", encode(gone))
    again = coordinator(tmp_path, store, predecessor="gone")
    again.exchange(0.0, 0.0)
    assert slow_told(store) == before
    nodes = again.orders().nodes
    assert nodes is not None
    assert nodes["a"].slow == before
    judged = dataclasses.replace(before, watched_s=71.0)
    again.tell(LocalState(True, 0, 0, slow=judged))
    again.exchange(0.1, 0.1)
    assert slow_told(store) == judged


def test_what_was_left_behind_is_told_until_another_node_tells_its_own(tmp_path: Path) -> None:
    store = MemoryStore(MemoryServer())
    before = SlownessReport(0, 8, 2, 5.0, watched_s=70.0)
    for node in "ab":
        store.report(
            Section.NODES, node, encode(NodeReport(node, "x", 9, 0, 0, 0, True, slow=before))
        )
    again = coordinator(tmp_path, store, predecessor="x")
    again.exchange(0.0, 0.0)
    again.exchange(0.1, 0.1)
    assert slow_told(store) is None


def whose(store: MemoryStore, node: str = "a") -> str:
    report = decode(NodeReport, store.read().section(Section.NODES)[node])
    assert report is not None
    return report.incarnation


def test_of_two_sidecars_of_one_name_the_first_leads_on_and_the_second_leaves(
    tmp_path: Path,
) -> None:
    server = MemoryServer()
    first, second = NoLeadership(), NoLeadership()
    one = coordinator(tmp_path, MemoryStore(server), "a", first)
    two = coordinator(tmp_path, MemoryStore(server), "a", second, "j", settings=CALM)
    left: list[float] = []
    for tenth in range(80):
        now = tenth / 10
        two.give_way = lambda now=now: left.append(now)  # type: ignore[misc]
        one.exchange(now, now)
        two.exchange(now, now)
        assert whose(MemoryStore(server)) == "i"
    assert {lease.epoch for lease in first.leases} == {1}
    assert second.leases == []
    assert not two.orders().store_up
    assert left == [pytest.approx(HANDOVER_S, abs=0.2)]
    assert "another sidecar watches node 'a' of job 'job'" in two.refusal
    assert "--node" in two.refusal
    assert not one.refusal


@pytest.mark.parametrize("launcher_pid", [0, 7])
def test_a_dead_sidecars_place_is_taken_and_if_it_wakes_it_stays_back(
    tmp_path: Path, launcher_pid: int
) -> None:
    server = MemoryServer()
    one = coordinator(tmp_path, MemoryStore(server), settings=CALM)
    two = coordinator(tmp_path, MemoryStore(server), incarnation="j", settings=CALM)
    one.exchange(0.0, 0.0)
    for tenth in range(30):
        two.exchange(tenth / 10, tenth / 10)
    assert whose(MemoryStore(server)) == "j"
    # Awake again; with its launcher gone it leaves soon in any case, and says nothing.
    one.tell(LocalState(not launcher_pid, launcher_pid, -1))
    for tenth in range(30, 100):
        one.exchange(tenth / 10, tenth / 10)
        two.exchange(tenth / 10, tenth / 10)
    assert whose(MemoryStore(server)) == "j"
    assert bool(one.refusal) == (not launcher_pid)
    assert not two.refusal


def test_a_restarted_sidecar_speaks_at_once(tmp_path: Path) -> None:
    store = MemoryStore(MemoryServer())
    coordinator(tmp_path, store).exchange(0.0, 0.0)
    again = coordinator(tmp_path, store, incarnation="j", predecessor="i")
    again.exchange(0.0, 0.0)
    assert whose(store) == "j"
    assert again.orders().is_leader


def test_on_a_server_that_came_back_empty_who_spoke_before_speaks_first(tmp_path: Path) -> None:
    server = MemoryServer()
    one = coordinator(tmp_path, MemoryStore(server))
    two = coordinator(tmp_path, MemoryStore(server), incarnation="j")
    one.exchange(0.0, 0.0)
    server.pause()
    with pytest.raises(StoreUnavailable) as away:
        two.exchange(0.1, 0.1)
    two._lose_store(away.value)
    server.resume()
    server.restart()
    two.exchange(0.2, 0.2)
    one.exchange(0.4, 0.4)
    two.exchange(2.0, 2.0)
    assert whose(MemoryStore(server)) == "i"


def test_alone_on_a_server_that_was_away_it_speaks_within_a_second(tmp_path: Path) -> None:
    server = MemoryServer()
    one = coordinator(tmp_path, MemoryStore(server))
    server.pause()
    with pytest.raises(StoreUnavailable) as away:
        one.exchange(0.0, 0.0)
    one._lose_store(away.value)
    server.resume()
    for tenth in range(11):
        one.exchange(tenth / 10, tenth / 10)
    assert whose(MemoryStore(server)) == "i"


def test_a_node_reports_where_no_thread_is_left_for_hearing_wake_ups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = threading.Thread.start

    def start(self: threading.Thread) -> None:
        if self.name == "listener" and is_full:
            raise RuntimeError("can't start new thread")
        begin(self)

    is_full = True
    monkeypatch.setattr(threading.Thread, "start", start)
    store = MemoryStore(MemoryServer())
    one = coordinator(tmp_path, store)
    one.start()
    try:
        for _ in range(500):
            if "a" in store.read().section(Section.NODES):
                break
            threading.Event().wait(0.01)
        assert "a" in store.read().section(Section.NODES)
        is_full = False
        for _ in range(500):
            if any(thread.name == "listener" for thread in threading.enumerate()):
                break
            threading.Event().wait(0.01)
        assert any(thread.name == "listener" for thread in threading.enumerate())
    finally:
        one.stop()
