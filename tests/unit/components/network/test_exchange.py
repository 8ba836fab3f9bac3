"""Two exchanges over real sockets on loopback, moved by hand: no thread, no waiting but for I/O."""

from __future__ import annotations

import errno
import select
import socket
import time
from collections.abc import Iterator

import pytest

from holdfast_sidecar.components.network import round_trip
from holdfast_sidecar.components.network.round_trip import (
    ASK,
    RELAY,
    Exchange,
    Packet,
    RoundTripPeers,
    pack,
)
from holdfast_sidecar.records.reports import Life

SECRET = b"k" * 32


class Node:
    def __init__(self, name: str, host: str = "127.0.0.1") -> None:
        self.name, self.host = name, host
        self.exchange = Exchange((host, 0))

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.exchange.port

    def knows(self, *others: Node, attempt: int = 1, secret: bytes = SECRET) -> None:
        addresses = {other.name: other.address for other in others}
        self.exchange.keep(RoundTripPeers(self.name, attempt, secret, addresses))

    def take_in(self, within_s: float = 2.0) -> None:
        select.select([self.exchange._socket], [], [], within_s)
        self.exchange.receive()


@pytest.fixture
def nodes() -> Iterator[tuple[Node, Node]]:
    pair = Node("a"), Node("b")
    yield pair
    for node in pair:
        node.exchange.open()
        node.exchange.close()


def test_a_packet_comes_back_and_its_time_is_told(nodes: tuple[Node, Node]) -> None:
    a, b = nodes
    a.knows(b)
    b.knows(a)
    for _ in range(3):
        a.exchange.ask_all()
        b.take_in()
        a.take_in()
    a.exchange.close_window()
    trips = a.exchange.read().windows[-1]["b"]
    assert (trips.sent, trips.lost) == (3, 0)
    assert trips.median_s is not None
    assert 0 <= trips.median_s < 1
    assert a.exchange.read().ever_answered == {"b"}


def test_what_does_not_come_back_is_lost(nodes: tuple[Node, Node]) -> None:
    a, b = nodes
    a.knows(b)
    b.knows(a, secret=b"x" * 32)  # it knows another key, so it answers nobody
    a.exchange.ask_all()
    b.take_in()
    a.exchange.ask_all()
    a.exchange.close_window()
    trips = a.exchange.read().windows[-1]["b"]
    assert (trips.sent, trips.lost, trips.median_s) == (2, 2, None)
    assert a.exchange.read().ever_answered == frozenset()
    assert b.exchange.refused == 1


def test_a_stranger_gets_no_answer(nodes: tuple[Node, Node]) -> None:
    a, _ = nodes
    a.knows()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.setblocking(False)
        for content in (b"hello", pack(Packet(ASK, 1, "a", bytes(16)), b"guess" * 7)):
            stranger.sendto(content, a.address)
            a.take_in()
        assert select.select([stranger], [], [], 0.05)[0] == []
    assert a.exchange.refused == 2


def test_another_attempt_begins_anew(nodes: tuple[Node, Node]) -> None:
    a, b = nodes
    a.knows(b)
    a.exchange.ask_all()
    a.exchange.close_window()
    assert a.exchange.read().windows
    a.knows(b, attempt=1)
    assert a.exchange.read().windows
    a.knows(b, attempt=2)
    assert a.exchange.read().windows == ()


def test_the_key_is_in_no_text_of_it() -> None:
    assert "kkkk" not in repr(RoundTripPeers("a", 1, SECRET))


def test_an_address_that_can_not_be_one_is_a_loss_like_others(nodes: tuple[Node, Node]) -> None:
    a, _ = nodes
    a.exchange.keep(RoundTripPeers("a", 1, SECRET, {"b": ("x" * 70, 1), "c": ("::1", 1)}))
    a.exchange.ask_all()
    a.exchange.close_window()
    window = a.exchange.read().windows[-1]
    assert {name: trips.lost for name, trips in window.items()} == {"b": 1, "c": 1}


LIFE = Life(has_launcher=True, ranks=4, step=17)


@pytest.fixture
def three() -> Iterator[tuple[Node, Node, Node]]:
    nodes = Node("a"), Node("b"), Node("c")
    yield nodes
    for node in nodes:
        node.exchange.open()
        node.exchange.close()


def acquaint(*nodes: Node) -> None:
    """All are members of one attempt, and none measures another."""
    for node in nodes:
        members = {other.name: other.address for other in nodes if other is not node}
        node.exchange.keep(RoundTripPeers(node.name, 1, SECRET, {}, members))


def test_a_node_that_is_asked_whether_it_lives_answers_with_the_steps_of_its_ranks(
    nodes: tuple[Node, Node],
) -> None:
    a, b = nodes
    acquaint(a, b)
    b.exchange.tell(LIFE)
    a.exchange.watch(frozenset("b"), frozenset())
    assert a.exchange.heard() == {}, "silence means nothing before"
    a.exchange.ask_strangers()
    b.take_in()
    a.take_in()
    heard = a.exchange.heard()["b"]
    assert heard.answered_s is not None
    assert (heard.life, heard.unanswered) == (LIFE, 0)
    assert a.exchange.read().windows == (), "it is not measured"


def test_rounds_of_questions_without_an_answer_are_counted_until_one_comes(
    nodes: tuple[Node, Node],
) -> None:
    a, b = nodes
    acquaint(a, b)
    a.exchange.watch(frozenset("b"), frozenset("b"))
    a.exchange.ask_closely()
    b.take_in()
    a.take_in()
    known = a.exchange.heard()["b"]
    for round_ in range(4):
        a.exchange.ask_closely()
        assert a.exchange.heard()["b"].unanswered == round_
        assert a.exchange.heard()["b"].answered_s == known.answered_s
    b.take_in()
    a.take_in()
    assert a.exchange.heard()["b"].unanswered == 0


def test_who_is_suspected_no_more_begins_anew(nodes: tuple[Node, Node]) -> None:
    a, b = nodes
    acquaint(a, b)
    a.exchange.watch(frozenset("b"), frozenset("b"))
    a.exchange.ask_closely()
    b.take_in()
    a.take_in()
    for _ in range(3):
        a.exchange.ask_closely()
    a.exchange.watch(frozenset("b"), frozenset())
    a.exchange.ask_closely()
    assert a.exchange.heard()["b"].unanswered == 0


def test_a_node_that_can_not_be_reached_directly_answers_through_another(
    three: tuple[Node, Node, Node],
) -> None:
    a, b, c = three
    acquaint(a, b, c)
    b.exchange.tell(LIFE)
    nowhere = {"b": ("127.0.0.1", 1), "c": c.address}
    a.exchange.keep(RoundTripPeers("a", 1, SECRET, {}, nowhere))
    a.exchange.watch(frozenset("b"), frozenset("b"))
    a.exchange.ask_closely()
    for node in (c, b, c, a):
        node.take_in()
    assert a.exchange.heard()["b"].life == LIFE
    assert c.exchange.heard() == {}, "it only handed on"


def test_nobody_asks_for_a_stranger_or_about_one(three: tuple[Node, Node, Node]) -> None:
    _, b, c = three
    acquaint(b, c)
    b.exchange.keep(RoundTripPeers("b", 1, SECRET, {}, {"c": c.address}))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for about, key in (("c", b"guess" * 7), ("a", SECRET), ("b", SECRET)):
            stranger.sendto(pack(Packet(RELAY, 1, about, bytes(16)), key), b.address)
            b.take_in()
    assert select.select([c.exchange._socket], [], [], 0.05)[0] == []
    assert b.exchange.refused == 2


def test_a_flood_of_strangers_keeps_nobody_from_what_is_due(nodes: tuple[Node, Node]) -> None:
    a, b = nodes
    acquaint(a, b)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for _ in range(200):
            stranger.sendto(b"x", a.address)
    a.take_in()
    assert 0 < a.exchange.refused < 200, "it looks up in between"


def test_a_node_that_answers_somewhere_else_now_has_to_answer_first(
    nodes: tuple[Node, Node],
) -> None:
    a, b = nodes
    acquaint(a, b)
    a.exchange.watch(frozenset("b"), frozenset())
    a.exchange.ask_strangers()
    b.take_in()
    a.take_in()
    assert set(a.exchange.heard()) == {"b"}
    a.exchange.keep(RoundTripPeers("a", 1, SECRET, {}, {"b": ("127.0.0.1", 1)}))
    assert a.exchange.heard() == {}


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 on loopback")
def test_nodes_ask_and_answer_over_ipv6() -> None:
    a, b = Node("a", "::1"), Node("b", "::1")
    acquaint(a, b)
    a.exchange.watch(frozenset("b"), frozenset())
    a.exchange.ask_strangers()
    b.take_in()
    a.take_in()
    assert set(a.exchange.heard()) == {"b"}
    for node in (a, b):
        node.exchange.open()
        node.exchange.close()


def test_what_is_for_a_name_that_is_not_found_is_sent_nowhere(nodes: tuple[Node, Node]) -> None:
    a, _ = nodes
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as here:
        here.bind(("127.0.0.1", 0))
        a.exchange.keep(RoundTripPeers("a", 1, SECRET, {"b": ("x" * 70, here.getsockname()[1])}))
        for _ in range(3):
            a.exchange.ask_all()
        assert select.select([here], [], [], 0.05)[0] == []


class Severed:
    """A socket of a node whose own link is down."""

    def __init__(self, real: socket.socket) -> None:
        self.real = real

    def sendto(self, content: bytes, address: object) -> int:
        raise OSError(errno.ENETUNREACH, "Network is unreachable")

    def __getattr__(self, name: str) -> object:
        return getattr(self.real, name)


def know(asker: Node, *others: Node) -> None:
    """All of these have answered it once, and are suspected now."""
    acquaint(asker, *others)
    names = frozenset(other.name for other in others)
    asker.exchange.watch(names, frozenset())
    asker.exchange.ask_strangers()
    for other in others:
        other.take_in()
        asker.take_in()
    assert set(asker.exchange.heard()) == names
    asker.exchange.watch(names, names)


def unanswered(node: Node) -> dict[str, int]:
    return {name: sign.unanswered for name, sign in node.exchange.heard().items()}


def test_nobody_is_silent_while_this_node_s_own_link_is_down(
    three: tuple[Node, Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, c = three
    know(a, b, c)
    with monkeypatch.context() as patch:
        patch.setattr(a.exchange, "_socket", Severed(a.exchange._socket))
        for _ in range(6):
            a.exchange.ask_closely()
        assert unanswered(a) == {"b": 0, "c": 0}
    for _ in range(3):
        a.exchange.ask_closely()
    assert unanswered(a) == {"b": 2, "c": 2}


def test_who_could_be_asked_through_nobody_else_was_not_asked(
    three: tuple[Node, Node, Node],
) -> None:
    """The way to it may be broken from here alone."""
    a, b, c = three
    know(a, b, c)
    a.exchange.watch(frozenset("b"), frozenset("b"))
    a.exchange.keep(RoundTripPeers("a", 1, SECRET, {}, {"b": b.address, "c": ("x" * 70, 1)}))
    for _ in range(6):
        a.exchange.ask_closely()
    assert unanswered(a) == {"b": 0}


def test_suspects_for_whose_questions_there_is_no_room_take_turns_and_are_not_silent(
    three: tuple[Node, Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, c = three
    know(a, b, c)
    now_s = time.monotonic()
    monkeypatch.setattr(round_trip, "MOST_OPEN", 1)
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    told = []
    for _ in range(4):
        a.exchange.ask_closely()
        a.exchange.ask_closely()
        told.append(unanswered(a))
        now_s += round_trip.LATE_S + 0.1
    assert [sorted(one.values()) for one in told] == [[0, 1], [1, 1], [1, 2], [2, 2]]


def test_who_is_suspected_no_more_begins_anew_though_it_could_not_be_asked_last(
    nodes: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = nodes
    know(a, b)
    for _ in range(3):
        a.exchange.ask_closely()
    assert unanswered(a) == {"b": 2}
    monkeypatch.setattr(round_trip, "MOST_OPEN", 0)
    a.exchange.ask_closely()
    a.exchange.watch(frozenset("b"), frozenset())
    a.exchange.ask_closely()
    assert unanswered(a) == {"b": 0}


def test_a_packet_for_which_there_was_no_room_is_not_lost(
    nodes: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = nodes
    a.knows(b)
    monkeypatch.setattr(round_trip, "MOST_OPEN", 0)
    a.exchange.ask_all()
    a.exchange.close_window()
    assert a.exchange.read().windows == ()
