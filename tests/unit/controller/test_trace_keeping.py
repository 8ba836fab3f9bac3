"""The leader's orders to trace on a store in memory; what nodes report is what the test says."""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import dataclass, field

import pytest

from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.controller.leader import REARMINGS, UNREAD_S, TraceKeeping
from holdfast_sidecar.policy.cluster import parse_cluster
from holdfast_sidecar.policy.tracing import TIMES_SHARE
from holdfast_sidecar.records.checkpoint import TracedPart, TracedRank, TraceOrder
from holdfast_sidecar.records.codec import decode, encode
from holdfast_sidecar.records.plan import Member, Plan, Request
from holdfast_sidecar.records.reports import NodeReport, RankReport
from holdfast_sidecar.store.memory_store import MemoryServer, MemoryStore
from holdfast_sidecar.store.protocol import CURRENT, Lease, Section

SAVED = "saved"


@dataclass
class Job:
    """Two nodes with a rank each, the second the slower one."""

    plan: Plan = field(
        default_factory=lambda: Plan(
            0, 1, "running", [Member("a", "i", 0, 0, 1), Member("b", "i", 1, 1, 1)], 2
        )
    )
    step: int = 100
    traced: dict[int, TracedRank] = field(default_factory=dict)
    layouts: tuple[str, str] = ("", "")
    now: float = 0.0
    step_s: float = 0.1

    def __post_init__(self) -> None:
        self.store = MemoryStore(MemoryServer(clock=lambda: 0.0))
        self.lease = self.store.campaign("a/i", 100.0, 0)
        names = itertools.count(1)
        self.keeping = TraceKeeping(self.store, Settings(), lambda: f"t{next(names)}")

    def ask(self, name: str = "r1", **given: object) -> None:
        request = Request(name, "trace", at_unix_s=float(name[1:]), for_s=60.0)
        request = dataclasses.replace(request, **given)  # type: ignore[arg-type]
        self.store.report(Section.REQUESTS, name, encode(request))

    def forget(self, name: str = "r1") -> None:
        self.store.report(Section.REQUESTS, name, None)

    def lead(self, seconds: float = 0.1, lease: Lease | None = None) -> TraceOrder | None:
        """One exchange; the order that stands then."""
        self.now += seconds
        for rank, name in enumerate("ab"):
            order = self.order
            part = None
            if order is not None and rank in self.traced:
                part = TracedPart(order.identifier, [self.traced[rank]])
            seen = RankReport(rank, 0, 1, self.step, "forward", 0.0, self.step_s, 0.0)
            own_s = self.step_s * (0.5 + 0.3 * rank)
            seen = dataclasses.replace(seen, own_s=own_s, layout=self.layouts[rank])
            report = NodeReport(name, "i", 1, 0, 1, 0, True, ranks=[seen], traced=part)
            self.store.report(Section.NODES, name, encode(report))
        cluster = parse_cluster(self.store.read())
        self.keeping.keep(lease or self.lease, cluster, self.plan, self.now)
        return self.order

    def tell(self, state: str, **more: object) -> None:
        for rank in (0, 1):
            one = TracedRank(rank, state, is_summed_up=state == SAVED)
            self.traced[rank] = dataclasses.replace(one, **more)  # type: ignore[arg-type]

    @property
    def order(self) -> TraceOrder | None:
        return decode(TraceOrder, self.store.read().section(Section.TRACE).get(CURRENT, ""))

    def request(self, name: str = "r1") -> Request | None:
        return decode(Request, self.store.read().section(Section.REQUESTS).get(name, ""))


def test_nothing_is_ordered_unless_somebody_asks() -> None:
    assert Job().lead() is None


def test_what_is_asked_for_becomes_an_order_with_a_fence_and_a_step_ahead() -> None:
    job = Job()
    job.ask(steps=3)
    order = job.lead()
    assert order is not None
    assert (order.state, order.attempt, order.epoch) == ("armed", 0, job.lease.epoch)
    assert (order.ranks, order.compared, order.steps) == ([0, 1], [1, 0], 3)
    assert order.step > job.step
    assert job.lead() == order


def test_stages_of_a_pipeline_are_no_peers() -> None:
    job = Job(layouts=("pp=0/2", "pp=1/2"))
    job.ask()
    order = job.lead()
    assert order is not None
    assert len(order.ranks) == 1
    assert "no peer of its role" in order.why


def test_what_the_ranks_took_stands_until_whoever_asked_has_read_it() -> None:
    job = Job()
    job.ask("r1")
    job.ask("r2")
    first = job.lead()
    assert first is not None
    job.tell(SAVED, path="/x", host="h")
    done = job.lead()
    assert done is not None
    assert (done.state, [one.path for one in done.taken]) == ("taken", ["/x", "/x"])
    assert job.lead(5.0) == done
    job.forget("r1")
    job.traced.clear()
    assert job.lead() is None
    second = job.lead()
    assert second is not None
    assert (second.request, second.state) == ("r2", "armed")


def test_what_nobody_reads_gives_way_after_a_while() -> None:
    job = Job()
    job.ask()
    job.lead()
    job.tell(SAVED)
    job.lead()
    job.lead()
    assert job.lead(UNREAD_S - 1) is not None
    assert job.lead(2.0) is None
    assert job.request() is None


def test_an_order_that_came_too_late_is_given_again_further_ahead_and_not_for_ever() -> None:
    job = Job()
    job.ask()
    orders = [job.lead()]
    job.tell("missed")
    for _ in range(REARMINGS):
        job.step += 50
        orders.append(job.lead())
    ahead = [order.step for order in orders if order is not None]
    assert ahead == sorted(ahead)
    assert [order.tries for order in orders if order is not None] == [0, 1, 2, 3]
    assert len({order.identifier for order in orders if order is not None}) == REARMINGS + 1
    last = job.lead()
    assert last is not None
    assert last.state == "void"
    assert "was past step" in last.reason


def test_a_step_that_was_named_is_not_exchanged_for_another() -> None:
    job = Job()
    job.ask(at_step=200)
    assert job.lead() is not None
    job.tell("missed")
    last = job.lead()
    assert last is not None
    assert (last.step, last.state) == (200, "void")


@pytest.mark.parametrize(
    ("given", "why"),
    [({"ranks": [0, 7]}, "there is no rank 7"), ({"at_step": 3}, "step 3 is too soon")],
)
def test_what_cannot_be_done_is_refused_in_a_line(given: dict[str, object], why: str) -> None:
    job = Job()
    job.ask("r1", **given)
    assert job.lead() is None
    request = job.request()
    assert request is not None
    assert why in request.refused
    assert job.lead() is None


def test_a_request_waits_while_no_ranks_step() -> None:
    job = Job(plan=Plan(0, 1, "evidence", [Member("a", "i", 0, 0, 1)], 1))
    job.ask()
    assert job.lead() is None
    assert job.request() is not None


def test_whoever_names_no_rank_gets_the_slow_one_though_the_ranks_have_only_begun() -> None:
    job = Job(step=2, step_s=0.0)
    job.ask()
    assert job.lead() is None
    job.step_s = 0.1
    order = job.lead()
    assert order is not None
    assert (order.compared, "longest own time" in order.why) == ([1, 0], True)


def test_times_that_never_come_are_waited_for_a_part_of_the_patience_and_not_for_named_ranks() -> (
    None
):
    job = Job(step=2, step_s=0.0)
    job.ask()
    job.lead()
    assert job.lead(60.0 * TIMES_SHARE - 1) is None
    order = job.lead(2.0)
    assert order is not None
    assert "nor any rank's own time" in order.why
    assert order.deadline_s == pytest.approx(60.0 - 60.0 * TIMES_SHARE - 1, abs=0.2)
    named = Job(step=2, step_s=0.0)
    named.ask(ranks=[1])
    assert named.lead() is not None


def test_a_request_whose_asker_was_killed_is_not_served_when_the_job_gets_to_it() -> None:
    job = Job()
    job.plan, steps = dataclasses.replace(job.plan, state="evidence"), job.plan
    job.ask()
    assert job.lead() is None
    job.lead(60.0 + UNREAD_S - 1)
    assert job.request() is not None
    job.lead(2.0)
    assert job.request() is None
    job.plan = steps
    assert job.lead() is None


def test_a_refusal_that_nobody_reads_is_removed() -> None:
    job = Job()
    job.ask(ranks=[7])
    job.lead()
    job.lead(60.0 + UNREAD_S + 1)
    assert job.request() is None


def test_an_order_ends_with_its_attempt_and_the_request_is_told() -> None:
    job = Job()
    job.ask()
    job.lead()
    job.plan = dataclasses.replace(job.plan, state="evidence")
    order = job.lead()
    assert order is not None
    assert (order.state, order.reason) == ("void", "the attempt ended")


def test_who_went_away_is_not_traced_for() -> None:
    job = Job()
    job.ask()
    job.lead()
    job.forget()
    order = job.lead()
    assert order is not None
    assert (order.state, order.reason) == ("void", "nobody waits for it any more")
    assert job.lead() is None


def test_a_deposed_leader_orders_nothing() -> None:
    job = Job()
    job.store.resign("a/i")
    job.store.campaign("b/i", 100.0, 0)
    job.ask()
    assert job.lead() is None
