"""Five sidecars' exchanges as they run, one of them behind a link that is really slow."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest
from tests.unit.ranks.scene import moment

from holdfast_sidecar.components.network.round_trip import Exchange, RoundTripPeers
from holdfast_sidecar.components.network.round_trip_checks import WINDOWS, find_slow_peers

SECRET = b"k" * 32
DELAY_S = 0.02


class SlowLink(threading.Thread):
    """Relays to one port on loopback and back, each way late."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.address: tuple[str, int] = self.socket.getsockname()
        self.is_broken = False

    def run(self) -> None:
        asker = ("127.0.0.1", 9)
        while True:
            try:
                content, sender = self.socket.recvfrom(200)
            except OSError:
                return
            if self.is_broken:
                continue
            time.sleep(DELAY_S / 2)
            is_answer = sender[1] == self.port
            asker = asker if is_answer else sender
            self.socket.sendto(content, asker if is_answer else ("127.0.0.1", self.port))


@pytest.fixture
def exchanges() -> Iterator[dict[str, Exchange]]:
    nodes = {name: Exchange(("127.0.0.1", 0), every_s=0.05) for name in "abcde"}
    yield nodes
    for one in nodes.values():
        one.close()


def wait_for_windows(exchange: Exchange, count: int = WINDOWS) -> None:
    """Until so many that came after now are all there is."""
    exchange._tally._windows = ()
    until = time.monotonic() + 20
    while len(exchange.read().windows) < count:
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_slow_link_is_told_from_the_others_and_a_broken_one_too(
    exchanges: dict[str, Exchange],
) -> None:
    slow = SlowLink(exchanges["e"].port)
    slow.start()
    addresses = {name: ("127.0.0.1", one.port) for name, one in exchanges.items()}
    addresses["e"] = slow.address
    for name, one in exchanges.items():
        asked = {node: where for node, where in addresses.items() if name == "a" and node != "a"}
        one.keep(RoundTripPeers(name, 1, SECRET, asked))
        one.open()
    wait_for_windows(exchanges["a"])
    trips = exchanges["a"].read()
    (finding,) = find_slow_peers(trips, moment(1.0))
    assert finding.what == "e"
    took_s = trips.windows[-1]["e"].median_s
    assert took_s is not None
    assert DELAY_S <= took_s < DELAY_S + 0.02
    slow.is_broken = True
    wait_for_windows(exchanges["a"], 1)
    wait_for_windows(exchanges["a"])
    (finding,) = find_slow_peers(exchanges["a"].read(), moment(2.0))
    assert "did not come back" in finding.evidence[0]
    slow.socket.close()
