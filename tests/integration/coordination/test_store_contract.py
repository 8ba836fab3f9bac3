"""The contract of a store, kept by both twins: memory, and a real server."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from typing import Protocol

import pytest
from tests.servers import Server

from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.reports import NodeReport
from holdfast_sidecar.store.memory_store import MemoryServer, MemoryStore
from holdfast_sidecar.store.protocol import Bid, Lease, OwnReport, Section, Store, WakeUp

LONG_S = 30.0
SHORT_S = 0.05


class Twin(Protocol):
    def store(self, job: str = "job", *, hears_reports: bool = True) -> Store: ...

    def elapse(self, seconds: float) -> None: ...

    def empty(self) -> None: ...


class InMemory:
    def __init__(self) -> None:
        self.now = 0.0
        self.server = MemoryServer(clock=lambda: self.now)

    def store(self, job: str = "job", *, hears_reports: bool = True) -> Store:
        return MemoryStore(self.server, job, hears_reports=hears_reports)

    def elapse(self, seconds: float) -> None:
        self.now += seconds

    def empty(self) -> None:
        self.server.empty()


class OnServer:
    def __init__(self, server: Server) -> None:
        self.server = server

    def store(self, job: str = "job", *, hears_reports: bool = True) -> Store:
        return self.server.store(job, hears_reports=hears_reports)

    def elapse(self, seconds: float) -> None:
        time.sleep(seconds)

    def empty(self) -> None:
        self.server.client().flushall()


@pytest.fixture(params=["memory", "redis"])
def twin(request: pytest.FixtureRequest) -> Iterator[Twin]:
    if request.param == "memory":
        yield InMemory()
    else:
        yield OnServer(request.getfixturevalue("server"))


@pytest.fixture
def store(twin: Twin) -> Store:
    return twin.store()


def test_an_exchange_reports_campaigns_and_reads_in_this_order(twin: Twin) -> None:
    store, other = twin.store(), twin.store()
    for round_ in range(2):  # at first the server knows none of the scripts
        lease, view = store.exchange("a", f"beat {round_}", Bid("a/i", LONG_S, 6), wake=False)
        assert lease == view.lease == Lease(7, "a/i")
        assert view.section(Section.NODES) == {"a": f"beat {round_}"}
    other.report(Section.PLAN, "current", "a plan")
    lease, view = other.exchange("b", "", Bid("b/i", LONG_S, 0), wake=False)
    assert lease == Lease(7, "a/i")
    assert view.section(Section.PLAN) == {"current": "a plan"}
    assert set(view.section(Section.NODES)) == {"a", "b"}


def test_an_exchange_leaves_another_sidecars_report_and_lease_alone(twin: Twin) -> None:
    store = twin.store()
    first = encode(NodeReport("a", "i", 1, 0, 0, 0, True))
    second = encode(NodeReport("a", "j", 1, 0, 0, 0, True))
    store.exchange("a", first, Bid("a/i", LONG_S, 0), wake=False)
    for instead_of in ([], ["x"], ["i2"]):
        lease, view = store.exchange(
            "a", second, Bid("a/j", LONG_S, 0), wake=True, instead_of=instead_of
        )
        assert lease == view.lease == Lease(1, "a/i")
        assert view.section(Section.NODES) == {"a": first}
    _, view = store.exchange("a", second, Bid("a/j", LONG_S, 0), wake=True, instead_of=["x", "i"])
    assert view.section(Section.NODES) == {"a": second}
    _, view = store.exchange("a", first, Bid("a/i", LONG_S, 0), wake=True)
    assert view.section(Section.NODES) == {"a": second}


def test_whose_report_it_is_can_not_be_feigned_by_what_it_says(twin: Twin) -> None:
    store = twin.store()
    feigned = 'a rank said {"incarnation":"j"'
    text = OwnReport().spell(NodeReport("a", "i", 1, 0, 0, 0, True, evidence_for=feigned))
    store.exchange("a", text, Bid("a/i", LONG_S, 0), wake=False)
    _, view = store.exchange("a", "{}", Bid("a/j", LONG_S, 0), wake=False)
    assert view.section(Section.NODES) == {"a": text}
    store.report(Section.NODES, "a", encode({"before": feigned, "incarnation": "i"}))
    _, view = store.exchange("a", "mine", Bid("a/i", LONG_S, 0), wake=False)
    assert view.section(Section.NODES) == {"a": "mine"}


def test_only_an_exchange_with_news_wakes_others(twin: Twin) -> None:
    store, other = twin.store(), twin.store()
    store.exchange("a", "1", Bid("a/i", LONG_S, 0), wake=False)
    other.wait(LONG_S)  # a listener's first wait hears of anything
    other.wait(SHORT_S)
    store.exchange("a", "2", Bid("a/i", LONG_S, 0), wake=False)
    assert other.wait(SHORT_S) == WakeUp.NOTHING
    store.exchange("a", "3", Bid("a/i", LONG_S, 0), wake=True)
    assert other.wait(LONG_S) == WakeUp.REPORTS


def test_nobody_leads_before_anyone_campaigned(store: Store) -> None:
    view = store.read()
    assert view.lease == Lease(0, "")
    assert view.sections == {}


def test_the_first_candidate_leads_and_the_second_is_told_so(twin: Twin) -> None:
    lease = twin.store().campaign("a", LONG_S, 0)
    assert lease == Lease(1, "a")
    assert twin.store().campaign("b", LONG_S, 0) == lease
    assert twin.store().read().lease == lease


def test_a_new_lease_is_above_the_floor(store: Store) -> None:
    assert store.campaign("a", LONG_S, 41) == Lease(42, "a")


def test_renewing_keeps_the_epoch(store: Store) -> None:
    lease = store.campaign("a", LONG_S, 7)
    assert store.campaign("a", LONG_S, 0) == lease
    assert store.campaign("a", LONG_S, lease.epoch) == lease


def test_renewing_below_the_floor_raises_the_epoch_past_it(store: Store) -> None:
    store.campaign("a", LONG_S, 0)
    assert store.campaign("a", LONG_S, 9) == Lease(10, "a")


def test_renewing_lengthens_the_lease(twin: Twin) -> None:
    store = twin.store()
    store.campaign("a", SHORT_S, 0)
    store.campaign("a", LONG_S, 0)
    twin.elapse(2 * SHORT_S)
    assert store.campaign("b", LONG_S, 0) == Lease(1, "a")


def test_an_expired_lease_goes_to_the_next_with_a_higher_epoch(twin: Twin) -> None:
    store = twin.store()
    store.campaign("a", SHORT_S, 0)
    twin.elapse(2 * SHORT_S)
    assert store.read().lease == Lease(0, "")
    assert store.campaign("b", LONG_S, 0) == Lease(2, "b")


def test_whoever_let_the_lease_expire_gets_a_new_epoch(twin: Twin) -> None:
    store = twin.store()
    store.campaign("a", SHORT_S, 0)
    twin.elapse(2 * SHORT_S)
    assert store.campaign("a", LONG_S, 0) == Lease(2, "a")


def test_a_resigned_lease_is_free_at_once(store: Store) -> None:
    store.campaign("a", LONG_S, 0)
    store.resign("a")
    assert store.campaign("b", LONG_S, 0) == Lease(2, "b")


def test_only_the_leader_can_resign(store: Store) -> None:
    lease = store.campaign("a", LONG_S, 0)
    store.resign("b")
    assert store.read().lease == lease


def test_a_deposed_leader_loses_its_lease_at_once_and_its_orders_are_refused(twin: Twin) -> None:
    store, other = twin.store(), twin.store()
    first = store.campaign("a", LONG_S, 0)
    while other.wait(0.02):
        pass
    assert store.campaign("b", LONG_S, 0, "somebody else") == first
    second = store.campaign("b", LONG_S, first.epoch, "a")
    assert second == Lease(first.epoch + 1, "b")
    assert other.wait(5) == WakeUp.ORDERS
    assert not store.order(first, Section.PLAN, "current", "stale", None)
    assert store.campaign("c", LONG_S, 0, "a") == second, "whoever comes second deposes nobody"
    assert store.campaign("a", LONG_S, 0) == second


def test_an_epoch_does_not_go_back_on_an_emptied_store(twin: Twin) -> None:
    store = twin.store()
    lease = store.campaign("a", LONG_S, 5)
    twin.empty()
    assert store.campaign("b", LONG_S, lease.epoch) == Lease(lease.epoch + 1, "b")


def test_a_candidate_may_be_called_anything(store: Store) -> None:
    lease = store.campaign("node one/4711 é", LONG_S, 0)
    assert store.read().lease == lease == Lease(1, "node one/4711 é")


def test_a_report_is_read_by_everyone_and_can_be_removed(twin: Twin) -> None:
    twin.store().report(Section.NODES, "a", "ü 1")
    twin.store().report(Section.NODES, "b", "")
    assert twin.store().read().section(Section.NODES) == {"a": "ü 1", "b": ""}
    twin.store().report(Section.NODES, "a", None)
    twin.store().report(Section.NODES, "b", None)
    assert twin.store().read().sections == {}


def test_jobs_do_not_see_each_other(twin: Twin) -> None:
    twin.store("one").report(Section.NODES, "a", "1")
    twin.store("one").campaign("a", LONG_S, 0)
    assert twin.store("two").read().sections == {}
    assert twin.store("two").campaign("b", LONG_S, 0) == Lease(1, "b")


def test_the_first_claim_holds(twin: Twin) -> None:
    assert twin.store().claim(Section.ENDPOINTS, "0", "host:1") == "host:1"
    assert twin.store().claim(Section.ENDPOINTS, "0", "host:2") == "host:1"
    assert twin.store().read().section(Section.ENDPOINTS) == {"0": "host:1"}


def test_a_claim_replaces_only_what_it_expects(store: Store) -> None:
    def held() -> dict[str, str]:
        return dict(store.read().section(Section.SETTINGS))

    assert store.claim(Section.SETTINGS, "s", "mine", expected="theirs") is None
    assert held() == {}
    store.claim(Section.SETTINGS, "s", "theirs")
    assert store.claim(Section.SETTINGS, "s", "mine", expected="other") == "theirs"
    assert store.claim(Section.SETTINGS, "s", "mine", expected="") == "theirs"
    assert held() == {"s": "theirs"}
    assert store.claim(Section.SETTINGS, "s", "mine", expected="theirs") == "mine"
    assert held() == {"s": "mine"}


def test_the_leader_writes_replaces_and_removes(store: Store) -> None:
    lease = store.campaign("a", LONG_S, 0)
    assert store.order(lease, Section.PLAN, "current", "1", None)
    assert store.order(lease, Section.PLAN, "current", "2", "1")
    assert store.read().section(Section.PLAN) == {"current": "2"}
    assert store.order(lease, Section.PLAN, "current", None, "2")
    assert store.read().section(Section.PLAN) == {}


@pytest.mark.parametrize(
    "stale", [Lease(1, "b"), Lease(2, "a"), Lease(0, ""), Lease(0, "a")], ids=str
)
def test_an_order_under_another_lease_is_refused(store: Store, stale: Lease) -> None:
    store.campaign("a", LONG_S, 0)
    assert not store.order(stale, Section.PLAN, "current", "1", None)
    assert store.read().section(Section.PLAN) == {}


def test_an_order_is_refused_once_the_lease_is_over(twin: Twin) -> None:
    store = twin.store()
    lease = store.campaign("a", SHORT_S, 0)
    twin.elapse(2 * SHORT_S)
    assert not store.order(lease, Section.PLAN, "current", "1", None)


def test_without_a_leader_no_order_is_taken(store: Store) -> None:
    assert not store.order(Lease(0, ""), Section.PLAN, "current", "1", None)


def test_an_order_under_the_lease_before_a_raise_is_refused(store: Store) -> None:
    before = store.campaign("a", LONG_S, 0)
    store.campaign("a", LONG_S, 5)
    assert not store.order(before, Section.PLAN, "current", "1", None)


def test_an_order_that_expected_something_else_is_refused(store: Store) -> None:
    lease = store.campaign("a", LONG_S, 0)
    assert not store.order(lease, Section.PLAN, "current", "2", "1")
    assert store.order(lease, Section.PLAN, "current", "1", None)
    assert not store.order(lease, Section.PLAN, "current", "2", None)
    assert not store.order(lease, Section.PLAN, "current", "2", "")
    assert store.read().section(Section.PLAN) == {"current": "1"}


def test_an_empty_value_is_not_an_absent_one(store: Store) -> None:
    lease = store.campaign("a", LONG_S, 0)
    assert store.order(lease, Section.PLAN, "current", "", None)
    assert not store.order(lease, Section.PLAN, "current", "1", None)
    assert store.order(lease, Section.PLAN, "current", "1", "")


def test_kept_keys_expire_and_the_lease_has_its_own_lifetime(twin: Twin) -> None:
    store = twin.store()
    lease = store.campaign("a", LONG_S, 0)
    store.report(Section.NODES, "a", "1")
    store.keep(SHORT_S)
    assert store.read().section(Section.NODES) == {"a": "1"}
    twin.elapse(2 * SHORT_S)
    assert store.read().sections == {}
    assert store.read().lease == lease


def test_every_kind_of_write_wakes_whoever_waits(twin: Twin) -> None:
    store, other = twin.store(), twin.store()
    drain(other)
    lease = store.campaign("a", LONG_S, 0)
    assert other.wait(5)
    store.report(Section.NODES, "a", "1")
    assert other.wait(5)
    store.claim(Section.ENDPOINTS, "0", "host:1")
    assert other.wait(5)
    store.order(lease, Section.PLAN, "current", "1", None)
    assert other.wait(5)
    store.report(Section.NODES, "a", None)
    assert other.wait(5)
    store.resign("a")
    assert other.wait(5)


def test_what_writes_nothing_wakes_nobody(twin: Twin) -> None:
    store, other = twin.store(), twin.store()
    lease = store.campaign("a", LONG_S, 0)
    store.claim(Section.ENDPOINTS, "0", "host:1")
    drain(other)
    store.campaign("a", LONG_S, 0)
    store.campaign("b", LONG_S, 0)
    store.claim(Section.ENDPOINTS, "0", "host:2")
    store.order(lease, Section.PLAN, "current", "1", "other")
    store.resign("b")
    assert not other.wait(0.02)


def test_a_heartbeat_is_written_and_wakes_nobody(twin: Twin) -> None:
    store, other = twin.store(), twin.store()
    drain(other)
    store.report(Section.NODES, "a", "1", wake=False)
    assert not other.wait(0.02)
    assert other.read().section(Section.NODES) == {"a": "1"}


@pytest.mark.parametrize(
    "section", [Section.AGENTS, Section.NODES, Section.REQUESTS], ids=lambda s: s.value
)
def test_who_hears_orders_alone_sleeps_through_reports(twin: Twin, section: Section) -> None:
    store, other = twin.store(), twin.store(hears_reports=False)
    drain(other)
    store.report(section, "a", "1")
    assert not other.wait(0.02)


@pytest.mark.parametrize("hears_reports", [True, False])
def test_a_wait_tells_orders_from_reports(twin: Twin, hears_reports: bool) -> None:
    store, other = twin.store(), twin.store(hears_reports=hears_reports)
    drain(other)
    lease = store.campaign("a", LONG_S, 0)
    assert other.wait(5) is WakeUp.ORDERS
    store.order(lease, Section.PLAN, "current", "1", None)
    assert other.wait(5) is WakeUp.ORDERS
    store.report(Section.ENDPOINTS, "0", "host:1")
    assert other.wait(5) is WakeUp.ORDERS
    store.report(Section.AGENTS, "a", "1")
    assert other.wait(0.02 if not hears_reports else 5) is (
        WakeUp.REPORTS if hears_reports else WakeUp.NOTHING
    )


def test_a_reading_can_be_of_some_sections_only(twin: Twin) -> None:
    store = twin.store()
    lease = store.campaign("a", LONG_S, 0)
    store.report(Section.AGENTS, "a", "1")
    store.report(Section.NODES, "a", "2")
    store.order(lease, Section.PLAN, "current", "3", None)
    view = store.read((Section.PLAN, Section.NODES))
    assert view.sections == {Section.PLAN: {"current": "3"}, Section.NODES: {"a": "2"}}
    assert (view.lease, view.server) == (lease, store.read().server)
    assert store.read(()).sections == {}


def test_many_writes_are_one_wake_up(twin: Twin) -> None:
    store, other = twin.store(), twin.store()
    drain(other)
    for number in range(20):
        store.report(Section.NODES, "a", str(number))
    assert other.wait(5)
    assert not other.wait(0.02)


def test_a_waiter_is_woken_by_another_thread(twin: Twin) -> None:
    store, other = twin.store(), twin.store()
    drain(other)
    woken: list[WakeUp] = []
    waiter = threading.Thread(target=lambda: woken.append(other.wait(30)))
    waiter.start()
    store.report(Section.NODES, "a", "1")
    waiter.join(10)
    assert woken == [WakeUp.REPORTS]


def test_one_store_serves_a_caller_while_another_thread_waits(twin: Twin) -> None:
    store = twin.store()
    drain(store)
    woken: list[WakeUp] = []
    waiter = threading.Thread(target=lambda: woken.append(store.wait(30)))
    waiter.start()
    lease = store.campaign("a", LONG_S, 0)
    waiter.join(10)
    assert woken == [WakeUp.ORDERS]
    assert store.read().lease == lease


@pytest.mark.parametrize("seed", range(15))
def test_epochs_grow_and_have_one_leader_each_whatever_happens(twin: Twin, seed: int) -> None:
    """Candidates come and go, leases expire, the server is emptied; floors are what was seen."""
    chance = random.Random(seed)
    stores = {name: twin.store() for name in "abc"}
    leases: dict[str, Lease] = {}
    leader_of: dict[int, str] = {}
    highest, value = 0, None
    for turn in range(60):
        name = chance.choice("abc")
        what = chance.choice(["campaign"] * 4 + ["order"] * 4 + ["resign", "expire", "empty"])
        if what == "campaign":
            answer = stores[name].campaign(name, LONG_S, highest)
            assert leader_of.setdefault(answer.epoch, answer.candidate) == answer.candidate
            assert answer.epoch >= highest
            highest = max(highest, answer.epoch)
            leases[name] = answer
        elif what == "order" and name in leases:
            in_force = stores[name].read().lease
            done = stores[name].order(leases[name], Section.PLAN, "current", str(turn), value)
            assert done == (leases[name] == in_force)
            value = str(turn) if done else value
        elif what == "resign":
            stores[name].resign(name)
        elif what == "expire":
            holder = stores[name].read().lease.candidate or name
            highest = stores[holder].campaign(holder, 0.002, highest).epoch
            assert leader_of.setdefault(highest, holder) == holder
            twin.elapse(0.004)
        elif what == "empty":
            twin.empty()
            value = None


def test_both_twins_answer_alike(server: Server) -> None:
    """The same random calls, made to both, have the same answers and leave the same view."""
    chance = random.Random(1)
    memory = InMemory()
    twins: list[Twin] = [memory, OnServer(server)]
    stores = [twin.store() for twin in twins]
    for turn in range(600):
        name, value = chance.choice("ab"), chance.choice([None, "", "1"])
        expected, floor = chance.choice([None, "", "1"]), chance.randrange(turn // 50 + 1)
        lease = Lease(chance.randrange(turn // 30 + 1), chance.choice("ab"))
        what = chance.choice(["campaign", "resign", "report", "claim", "order", "order", "lead"])
        answers: list[object] = []
        for store in stores:
            if what == "campaign":
                answers.append(store.campaign(name, LONG_S, floor))
            elif what == "resign":
                store.resign(name)
                answers.append(None)
            elif what == "report":
                store.report(Section.NODES, name, value)
                answers.append(None)
            elif what == "claim":
                answers.append(store.claim(Section.NODES, name, value or "", expected))
            else:
                under = lease if what == "order" else store.read().lease
                answers.append(store.order(under, Section.PLAN, name, value, expected))
        assert answers[0] == answers[1], (turn, what)
        views = [store.read() for store in stores]
        assert (views[0].lease, views[0].sections) == (views[1].lease, views[1].sections), turn


def drain(store: Store) -> None:
    """Wait until nothing more is heard; a first wait may be woken by nothing."""
    store.read()
    while store.wait(0.02):
        pass


def test_a_report_is_not_written_over_that_of_somebody_else(twin: Twin) -> None:
    store, mine, theirs = twin.store(), '{"incarnation":"me"}', '{"incarnation":"other"}'

    def held() -> str:
        return store.read().section(Section.AGENTS)["a"]

    assert store.report_as(Section.AGENTS, "a", theirs, {"other"}) is None
    assert store.report_as(Section.AGENTS, "a", mine, {"me"}) == theirs
    assert held() == theirs
    assert store.report_as(Section.AGENTS, "a", mine, {"me", "other"}) is None
    assert held() == mine
    assert store.report_as(Section.AGENTS, "a", theirs, {"me2", "m", "e"}, wake=False) == mine
    twin.empty()
    assert store.report_as(Section.AGENTS, "a", theirs, {"other"}) is None


def test_the_time_is_the_server_s_the_same_for_all_and_goes_on(twin: Twin) -> None:
    first = twin.store("job").time()
    second = twin.store("other").time()
    assert isinstance(first, float)
    assert 0.0 <= second - first < 60.0
