"""What wakes a launcher that follows the plan."""

from __future__ import annotations

import select

from holdfast_sidecar.launcher.plan_watch import PlanWatch
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.store.memory_store import MemoryServer, MemoryStore
from holdfast_sidecar.store.protocol import Section, StoreUnavailable


def is_woken(watch: PlanWatch) -> bool:
    woken = bool(select.select([watch.news_fd], [], [], 0)[0])
    watch.drain()
    return woken


def test_a_reading_like_the_one_before_wakes_nobody() -> None:
    server = MemoryServer(clock=lambda: 0.0)
    leader, watch = MemoryStore(server), PlanWatch(MemoryStore(server), look_every_s=0.0)
    lease = leader.campaign("leader", 60.0, 0)
    watch._follow()
    assert is_woken(watch)
    watch._follow()
    assert not is_woken(watch)
    plan = Plan(0, 1, "running", [], world_size=0)
    assert leader.order(lease, Section.PLAN, "current", encode(plan), None)
    watch._follow()
    assert is_woken(watch)
    assert watch.plan == plan
    leader.resign("leader")
    watch._follow()
    assert is_woken(watch)  # nobody leads any more: who waits to leave may do so


def test_a_store_that_goes_and_comes_back_wakes_who_waits_both_times() -> None:
    server = MemoryServer(clock=lambda: 0.0)
    watch = PlanWatch(MemoryStore(server), look_every_s=0.0)
    watch._follow()
    watch.drain()
    watch._lose(StoreUnavailable("away"))
    assert is_woken(watch)
    watch._follow()
    assert is_woken(watch)
