"""What the loop makes of the plan and of the others' reports."""

from __future__ import annotations

import dataclasses

import pytest

from holdfast_sidecar.components.network.round_trip import (
    NodeRoundTrip,
    RoundTripPeers,
    accusers,
    life_of,
    parse_address,
)
from holdfast_sidecar.components.network.round_trip_checks import RoundTrips
from holdfast_sidecar.records.checkpoint import AttemptKey
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.plan import Member, Plan
from holdfast_sidecar.records.reports import AgentReport, Life, NodeReport, RankReport
from holdfast_sidecar.store.orders import Orders
from holdfast_sidecar.store.protocol import Lease, Section, View


class Recorded:
    """An exchange that only notes whom it should ask."""

    port = 7

    def __init__(self, listen: tuple[str, int]) -> None:
        self.listen = listen
        self.company: RoundTripPeers | None = None

    def open(self) -> None: ...
    def close(self) -> None: ...
    def read(self) -> RoundTrips:
        return RoundTrips()

    def keep(self, company: RoundTripPeers | None) -> None:
        self.company = company

    def tell(self, life: Life) -> None:
        self.life = life


def report(node: str, beat: int = 1, address: str = "10.0.0.9:7") -> NodeReport:
    return NodeReport(node, "x", beat, 1, 1, 1, True, echo_address=address)


def orders(*reports: NodeReport, state: str = "running") -> Orders:
    plan = Plan(1, 1, state, [Member(n, "x", 0, 0, 1) for n in ("a", "b", "c")], 3)
    nodes = {one.node: encode(one) for one in reports}
    view = View(Lease(1, "a/x"), "server", {Section.NODES: nodes})
    return Orders(plan=plan, key=AttemptKey(1, "ab" * 32), view=view)


def echo(listen: str = "127.0.0.1:0") -> NodeRoundTrip:
    return NodeRoundTrip("a", listen, open_exchange=Recorded)  # type: ignore[arg-type]


def company(node: NodeRoundTrip) -> RoundTripPeers | None:
    return None if node._exchange is None else node._exchange.company  # type: ignore[attr-defined]


def test_alone_nothing_is_opened() -> None:
    node = echo()
    assert node.follow(orders(report("a")), 0.0) is None
    assert (node.address, company(node)) == ("", None)


def test_other_members_are_asked_where_they_say_they_answer() -> None:
    node = echo()
    node.follow(orders(report("b"), report("c", address=""), report("spare")), 0.0)
    known = company(node)
    assert known is not None
    assert known.addresses == {"b": ("10.0.0.9", 7)}
    assert node.address == "127.0.0.1:7"


def test_a_sidecar_that_stands_still_is_not_asked() -> None:
    node = echo()
    node.follow(orders(report("b", beat=5), report("c", beat=5)), 0.0)
    node.follow(orders(report("b", beat=6), report("c", beat=5)), 10.0)
    known = company(node)
    assert known is not None
    assert set(known.addresses) == {"b"}


def test_a_member_that_stands_still_is_known_and_may_be_asked_whether_it_lives() -> None:
    node = echo()
    node.follow(orders(report("b", beat=5)), 0.0)
    node.follow(orders(report("b", beat=5)), 10.0)
    node.follow(dataclasses.replace(orders(), store_up=False), 20.0)
    known = company(node)
    assert known is not None
    assert (dict(known.addresses), known.address_of("b")) == ({}, ("10.0.0.9", 7))


def test_a_spare_measures_nothing_but_may_ask_any_member() -> None:
    node = NodeRoundTrip("spare", "127.0.0.1:0", open_exchange=Recorded)  # type: ignore[arg-type]
    node.follow(orders(report("b"), report("c")), 0.0)
    known = company(node)
    assert known is not None
    assert dict(known.addresses) == {}
    assert set(known.members) == {"b", "c"}


def test_an_address_that_becomes_known_is_not_waited_for() -> None:
    node = echo()
    first = orders(report("b", address=""))
    node.follow(dataclasses.replace(first, nodes={"b": report("b", address="")}), 0.0)
    later = dataclasses.replace(first, nodes={"b": report("b", beat=2)})
    node.follow(later, 0.1)
    known = company(node)
    assert known is not None
    assert set(known.members) == {"b"}


@pytest.mark.parametrize(
    ("listen", "own", "other", "opened"),
    [
        ("127.0.0.1:0", "127.0.0.1", "127.0.0.1", "127.0.0.1"),
        ("127.0.0.1:0", "10.0.0.1", "10.0.0.2", "towards 10.0.0.2"),
        ("127.0.0.1:0", "127.0.0.1", "10.0.0.2", "towards 10.0.0.2"),
        ("10.9.9.9:71", "10.0.0.1", "10.0.0.2", "10.9.9.9"),
    ],
    ids=["one machine", "several machines", "Redis runs on this one", "as set"],
)
def test_it_listens_where_the_other_nodes_reach_it(
    listen: str, own: str, other: str, opened: str
) -> None:
    towards = "towards {}".format
    node = NodeRoundTrip("a", listen, open_exchange=Recorded, towards=towards)  # type: ignore[arg-type]
    told = orders(report("b"))
    assert told.view is not None
    agents = {
        name: encode(AgentReport(name, "x", "running", 1, 1, 1, address, 2, 2))
        for name, address in (("a", own), ("b", other))
    }
    view = dataclasses.replace(told.view, sections={**told.view.sections, Section.AGENTS: agents})
    node.follow(dataclasses.replace(told, view=view), 0.0)
    assert node._exchange is not None
    assert node._exchange.listen[0] == opened  # type: ignore[attr-defined]
    assert node.address == f"{opened}:7"


def test_it_answers_with_the_lowest_step_of_the_ranks_that_live() -> None:
    ranks = [RankReport(n, n, n, 10 + n, "forward", 0.0, 0.1, 0.1, alive=n != 0) for n in range(3)]
    assert life_of(True, ranks) == Life(True, 2, 11)
    assert life_of(False, []) == Life(False, 0, -1)


def test_between_attempts_nobody_is_asked() -> None:
    node = echo()
    node.follow(orders(report("b")), 0.0)
    node.follow(orders(report("b", beat=2), state="forming"), 10.0)
    known = company(node)
    assert known is None or not known.addresses


def test_on_a_wildcard_no_address_is_told_before_the_launcher_says_one() -> None:
    node = echo("0.0.0.0:0")
    node.follow(orders(report("b")), 0.0)
    assert node.address == ""


def test_who_finds_whom_slow_is_read_from_reports() -> None:
    slow = Finding(Kind.PEER_SLOW, "b", 1.0, 0.5, what="c")
    other = Finding(Kind.STALL, "b", 1.0, 0.5, what="c")
    told = NodeReport("b", "x", 1, 1, 1, 1, True, findings=[slow, other])
    assert accusers({"b": told}) == {"c": ("b",)}


def test_addresses_that_are_none_are_passed_over() -> None:
    assert parse_address("[fd00::1]:9") == ("fd00::1", 9)
    assert [parse_address(text) for text in ("", "b", ":9", "b:x", "b:70000")] == [None] * 5
