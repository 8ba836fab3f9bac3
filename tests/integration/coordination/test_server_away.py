"""What a job's stores do when the real server is killed, paused, emptied or crowded."""

from __future__ import annotations

import threading
import time

import pytest
from tests.servers import Server, wait_until

from holdfast_sidecar.store.protocol import (
    ENDED_TTL_S,
    RUNNING_TTL_S,
    Keys,
    Lease,
    Section,
    StoreUnavailable,
    WakeUp,
)

LONG_S = 30.0


def test_a_killed_server_is_unavailable_and_works_again_after_a_restart(server: Server) -> None:
    store, other = server.store(), server.store()
    lease = store.campaign("a", LONG_S, 0)
    before = store.read().server
    other.read()
    server.kill()
    for call in (
        store.read,
        lambda: store.campaign("a", LONG_S, 0),
        lambda: store.resign("a"),
        lambda: store.report(Section.NODES, "a", "1"),
        lambda: store.claim(Section.ENDPOINTS, "0", "host:1"),
        lambda: store.order(lease, Section.PLAN, "current", "1", None),
        lambda: store.keep(1),
    ):
        with pytest.raises(StoreUnavailable):
            call()
    server.start()
    assert store.read().server != before
    assert store.campaign("a", LONG_S, lease.epoch) == Lease(lease.epoch + 1, "a")
    assert not other.order(lease, Section.PLAN, "current", "1", None)


def test_an_idle_store_does_not_notice_a_restart(server: Server) -> None:
    """A connection that the server closed is replaced before it is used."""
    store = server.store()
    store.read()
    server.restart()
    store.report(Section.NODES, "a", "1")
    assert store.read().section(Section.NODES) == {"a": "1"}


def test_waiting_outlives_a_restart(server: Server) -> None:
    store, other = server.store(), server.store()
    while store.wait(0.02):
        pass
    server.kill()
    began = time.monotonic()
    assert not store.wait(0.15)
    assert time.monotonic() - began >= 0.15  # not at once, or a loop around it would spin
    server.start()
    assert store.wait(10)  # subscribed anew: something may have been missed
    woken: list[WakeUp] = []
    waiter = threading.Thread(target=lambda: woken.append(store.wait(30)))
    waiter.start()
    other.report(Section.NODES, "a", "1")
    waiter.join(10)
    assert woken == [WakeUp.REPORTS]


def test_a_paused_server_is_unavailable_after_the_timeout_and_keeps_what_it_had(
    server: Server,
) -> None:
    server.settings = server.with_settings(timeout_s=0.2)
    store = server.store()
    lease = store.campaign("a", LONG_S, 0)
    server.pause()
    try:
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            store.read()
        with pytest.raises(StoreUnavailable):  # this time the connection must be made first
            store.read()
        assert not store.wait(0.1)
        assert time.monotonic() - began < 5
    finally:
        server.resume()
    wait_until(lambda: store.read().lease == lease, "the store answers")


def test_an_order_that_timed_out_may_be_carried_out_late_but_never_twice(server: Server) -> None:
    """What a paused server had received is done when it resumes; the fence still holds."""
    server.settings = server.with_settings(timeout_s=0.2)
    store = server.store()
    lease = store.campaign("a", LONG_S, 0)
    assert store.order(lease, Section.PLAN, "current", "1", None)
    server.pause()
    try:
        with pytest.raises(StoreUnavailable):
            store.order(lease, Section.PLAN, "current", "2", "1")
    finally:
        server.resume()
    wait_until(lambda: store.read().section(Section.PLAN)["current"] == "2", "the order is done")
    assert not store.order(lease, Section.PLAN, "current", "2", "1")


def test_two_stores_work_on_when_the_server_is_emptied_under_them(server: Server) -> None:
    """Candidates bring their floors along, so that each one's epochs only grow."""
    epochs: dict[str, list[int]] = {"a": [], "b": []}
    client = server.client()
    stop = threading.Event()

    def lead(name: str) -> None:
        store, floor = server.store(), 0
        while not stop.is_set():
            lease = store.campaign(name, 0.02, floor)
            if lease.candidate == name:
                epochs[name].append(lease.epoch)
            floor = max(floor, lease.epoch)
        epochs[name].append(floor)

    threads = [threading.Thread(target=lead, args=(name,)) for name in epochs]
    for thread in threads:
        thread.start()
    for _ in range(10):
        stop.wait(0.03)
        client.flushall()
    stop.set()
    for thread in threads:
        thread.join(10)
    for seen in epochs.values():
        assert seen == sorted(seen)
    assert max(max(seen) for seen in epochs.values()) >= 10  # every emptying raised it


def test_scripts_are_sent_again_when_the_server_forgot_them(server: Server) -> None:
    store = server.store()
    store.campaign("a", LONG_S, 0)
    server.client().script_flush()
    assert store.campaign("a", LONG_S, 0) == Lease(1, "a")


def test_a_server_out_of_memory_is_unavailable_not_a_crash(server: Server) -> None:
    store = server.store()
    server.client().config_set("maxmemory", "1")
    with pytest.raises(StoreUnavailable, match="memory"):
        store.report(Section.NODES, "a", "1")


def test_every_key_of_a_job_expires_from_its_first_write(server: Server) -> None:
    store = server.store()
    lease = store.campaign("a", LONG_S, 0)
    store.order(lease, Section.PLAN, "current", "1", None)
    store.report(Section.NODES, "a", "1")
    store.claim(Section.ENDPOINTS, "0", "host:1")
    client = server.client()
    keys = client.keys("*")
    assert set(keys) <= set(Keys("job").all())
    assert len(keys) == 5
    assert all(0 < client.ttl(key) <= RUNNING_TTL_S for key in keys)
    store.keep(ENDED_TTL_S)
    assert all(0 < client.ttl(key) <= ENDED_TTL_S for key in keys)
    store.report(Section.NODES, "a", "2")  # a late report does not bring the job back to life
    assert client.ttl(Keys("job").section(Section.NODES)) <= ENDED_TTL_S


def test_fifty_jobs_share_one_server(server: Server) -> None:
    stores = [server.store(f"job-{number}") for number in range(50)]
    for number, store in enumerate(stores):
        lease = store.campaign(f"leader-{number}", LONG_S, number)
        assert lease == Lease(number + 1, f"leader-{number}")
        assert store.order(lease, Section.PLAN, "current", str(number), None)
    while stores[7].wait(0.02):
        pass
    for store in stores[:7] + stores[8:]:
        store.report(Section.NODES, "a", "1")
    assert not stores[7].wait(0.02)  # other jobs wake nobody here
    for number, store in enumerate(stores):
        view = store.read()
        assert view.section(Section.PLAN) == {"current": str(number)}
        assert view.lease.candidate == f"leader-{number}"
        store.close()
