"""What the memory twin can do beside its contract: fail as a server does, on order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast_sidecar.store.memory_store import MemoryServer, MemoryStore
from holdfast_sidecar.store.protocol import RUNNING_TTL_S, Lease, Section, Store, StoreUnavailable


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(clock: Clock) -> MemoryServer:
    return MemoryServer(clock)


def test_it_keeps_the_protocol(server: MemoryServer) -> None:
    store: Store = MemoryStore(server)
    assert store.read().sections == {}


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.read(),
        lambda store: store.campaign("a", 1, 0),
        lambda store: store.resign("a"),
        lambda store: store.report(Section.NODES, "a", "1"),
        lambda store: store.claim(Section.NODES, "a", "1"),
        lambda store: store.order(Lease(1, "a"), Section.PLAN, "current", "1", None),
        lambda store: store.keep(1),
    ],
)
def test_a_paused_server_is_unavailable_and_keeps_everything(
    server: MemoryServer, call: Callable[[Store], object]
) -> None:
    store = MemoryStore(server)
    store.report(Section.AGENTS, "a", "1")
    server.pause()
    with pytest.raises(StoreUnavailable):
        call(store)
    server.resume()
    assert store.read().section(Section.AGENTS) == {"a": "1"}


def test_a_lease_ends_at_its_time_and_not_before(server: MemoryServer, clock: Clock) -> None:
    store = MemoryStore(server)
    store.campaign("a", 2.0, 0)
    clock.now = 1.99
    assert store.read().lease == Lease(1, "a")
    clock.now = 2.0
    assert store.read().lease == Lease(0, "")


def test_an_emptied_server_keeps_its_identity_and_nothing_else(server: MemoryServer) -> None:
    store = MemoryStore(server)
    store.campaign("a", 2.0, 0)
    store.report(Section.NODES, "a", "1")
    before = store.read().server
    server.empty()
    view = store.read()
    assert (view.server, view.lease, view.sections) == (before, Lease(0, ""), {})
    assert store.campaign("b", 2.0, 0) == Lease(1, "b")  # only a floor keeps epochs growing


def test_a_restarted_server_is_another_one_and_empty(server: MemoryServer) -> None:
    store = MemoryStore(server)
    store.report(Section.NODES, "a", "1")
    before = store.read().server
    server.restart()
    assert store.read().server != before
    assert store.read().sections == {}


def test_a_failover_loses_the_last_writes_of_all_jobs(server: MemoryServer) -> None:
    one, two = MemoryStore(server, "one"), MemoryStore(server, "two")
    one.report(Section.NODES, "a", "1")
    two.report(Section.NODES, "a", "1")
    one.report(Section.NODES, "a", "2")
    two.report(Section.NODES, "a", "2")
    one.campaign("a", 2.0, 0)
    before = one.read().server
    server.fail_over(lost_writes=2)
    assert one.read().server != before
    assert one.read().lease == Lease(0, "")
    assert one.read().section(Section.NODES) == {"a": "2"}
    assert two.read().section(Section.NODES) == {"a": "1"}


def test_a_failover_that_loses_nothing_changes_the_identity_alone(server: MemoryServer) -> None:
    store = MemoryStore(server)
    lease = store.campaign("a", 2.0, 0)
    before = store.read().server
    server.fail_over()
    assert store.read().server != before
    assert store.read().lease == lease


def test_a_failover_that_loses_more_than_there_was_leaves_nothing(server: MemoryServer) -> None:
    store = MemoryStore(server)
    store.report(Section.NODES, "a", "1")
    server.fail_over(lost_writes=10)
    assert store.read().sections == {}
    server.fail_over(lost_writes=1)  # nothing was written since
    assert store.read().sections == {}


def test_keys_expire_a_day_after_they_were_written(server: MemoryServer, clock: Clock) -> None:
    store = MemoryStore(server)
    store.campaign("a", 1.0, 6)
    store.report(Section.NODES, "a", "1")
    clock.now = RUNNING_TTL_S - 1
    assert store.read().section(Section.NODES) == {"a": "1"}
    store.keep(RUNNING_TTL_S)
    clock.now += RUNNING_TTL_S - 1
    assert store.campaign("a", 1.0, 0) == Lease(8, "a")
    clock.now += RUNNING_TTL_S
    assert store.read().sections == {}
    assert store.campaign("a", 1.0, 0) == Lease(1, "a")


def test_what_was_read_does_not_change_afterwards(server: MemoryServer) -> None:
    store = MemoryStore(server)
    store.report(Section.NODES, "a", "1")
    view = store.read()
    store.report(Section.NODES, "a", "2")
    assert view.section(Section.NODES) == {"a": "1"}
