"""Two exchanges over real sockets on loopback, moved by hand: no thread, no waiting but for I/O."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator

import pytest

from holdfast_sidecar.echo.exchange import Company, Exchange
from holdfast_sidecar.echo.packet import ASK, Packet, pack

SECRET = b"k" * 32


class Node:
    def __init__(self, name: str) -> None:
        self.name = name
        self.exchange = Exchange(("127.0.0.1", 0))

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.exchange.port

    def knows(self, *others: Node, attempt: int = 1, secret: bytes = SECRET) -> None:
        addresses = {other.name: other.address for other in others}
        self.exchange.keep(Company(self.name, attempt, secret, addresses))

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
    assert "kkkk" not in repr(Company("a", 1, SECRET))


def test_an_address_that_can_not_be_one_is_a_loss_like_others(nodes: tuple[Node, Node]) -> None:
    a, _ = nodes
    a.exchange.keep(Company("a", 1, SECRET, {"b": ("x" * 70, 1), "c": ("::1", 1)}))
    a.exchange.ask_all()
    a.exchange.close_window()
    window = a.exchange.read().windows[-1]
    assert {name: trips.lost for name, trips in window.items()} == {"b": 1, "c": 1}
