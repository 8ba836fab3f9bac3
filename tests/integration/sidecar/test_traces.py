"""A trace from the request in Redis to the files of two ranks: a real sidecar leads and arms."""

from __future__ import annotations

import dataclasses
import sys
import time
from pathlib import Path

from tests.integration.sidecar.node import Node, wait_for

from holdfast.contract import page
from holdfast_sidecar.ranks.page import Pages
from holdfast_sidecar.records.checkpoint import TraceOrder
from holdfast_sidecar.records.codec import decode, encode
from holdfast_sidecar.records.plan import Request
from holdfast_sidecar.store.protocol import CURRENT, Section

RANK = Path(__file__).with_name("tracing_rank.py")


class Traced:
    """A job of one node with two ranks, rank 1 the slower one, and what is asked of it."""

    def __init__(self, node: Node, own: str = "", step_s: float = 0.02) -> None:
        self.node = node
        self.store = node.server.store(node.job)
        launcher = node.launcher()
        node.agent(launcher, "joining")
        node.places.shm.mkdir(mode=0o700, parents=True)
        node.sidecar("--launcher-pid", str(launcher.pid), "--set", "sidecar.heartbeat_s=0.2")
        plan = wait_for(node.plan)
        evidence = str(node.places.evidence(plan.attempt))
        for rank in (0, 1):
            command = [sys.executable, str(RANK), str(node.places.shm), evidence]
            command += [str(rank), str(plan.attempt), str(step_s), own if rank == 1 else ""]
            node._start(command)
        node.agent(launcher, "running", plan.attempt)
        wait_for(lambda: (r := node.report()) and len(r.ranks) == 2 and r.ranks[0].step > 5)

    def ask(self, name: str = "r1", for_s: float = 20.0, **given: object) -> None:
        request = Request(name, "trace", at_unix_s=time.time(), for_s=for_s)
        request = dataclasses.replace(request, **given)  # type: ignore[arg-type]
        self.store.report(Section.REQUESTS, name, encode(request))

    def forget(self, name: str = "r1") -> None:
        self.store.report(Section.REQUESTS, name, None)

    @property
    def order(self) -> TraceOrder | None:
        return decode(TraceOrder, self.store.read().section(Section.TRACE).get(CURRENT, ""))

    def ended(self, timeout_s: float = 20.0) -> TraceOrder:
        found = wait_for(
            lambda: (o := self.order) is not None and o.state != "armed" and o, timeout_s
        )
        assert isinstance(found, TraceOrder)
        return found

    def withdrawn(self) -> list[bool]:
        pages = Pages(self.node.places.shm)
        try:
            orders = [held.read_order(page.OrderKind.TRACE) for held in pages.refresh()]
            return [order is not None and order.is_withdrawn for order in orders]
        finally:
            pages.close()


def test_both_ranks_trace_the_same_steps_and_the_slow_ones_operators_are_told(node: Node) -> None:
    job = Traced(node)
    job.ask(steps=2)
    order = job.ended()
    assert (order.state, order.ranks, order.compared) == ("taken", [0, 1], [1, 0])
    assert [(one.rank, one.state, one.error) for one in order.taken] == [
        (0, "saved", ""),
        (1, "saved", ""),
    ]
    forward = {one.rank: one.parts_us["forward"] for one in order.taken}
    assert forward[1] > 1.2 * forward[0] > 0
    ran = {one.rank: {o.name: o.self_us for o in one.operators} for one in order.taken}
    assert (ran[0]["aten::mm"], ran[1]["aten::mm"]) == (1e4, 2e4)
    assert all(Path(one.path).is_file() and one.size_bytes for one in order.taken)
    job.forget()
    wait_for(lambda: job.order is None)
    wait_for(lambda: (r := node.report()) and r.traced is None)
    job.ask("r2")
    assert job.ended().state == "taken"


def test_a_rank_whose_script_profiles_itself_says_so_and_the_other_is_traced(node: Node) -> None:
    job = Traced(node, own="own")
    job.ask()
    order = job.ended()
    assert order.state == "taken"
    assert [(one.rank, one.state, one.error) for one in order.taken] == [
        (0, "saved", ""),
        (1, "failed", "the script's own profiler is active"),
    ]


def test_who_no_longer_waits_leaves_no_order_behind_in_any_page(node: Node) -> None:
    job = Traced(node)
    job.ask(at_step=2000, for_s=300.0)
    wait_for(lambda: job.order)
    wait_for(lambda: job.withdrawn() == [False, False])
    job.forget()
    wait_for(lambda: job.order is None)
    wait_for(lambda: job.withdrawn() == [True, True])


def test_a_step_that_is_not_reached_in_time_is_told_with_where_the_rank_is(node: Node) -> None:
    job = Traced(node, step_s=0.1)
    job.ask(for_s=1.0)
    seen = wait_for(lambda: (r := _request(job)) is not None and (r.refused or None), 20.0)
    assert "away" in seen


def _request(job: Traced) -> Request | None:
    return decode(Request, job.store.read().section(Section.REQUESTS).get("r1", ""))
