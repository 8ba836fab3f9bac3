"""Where hosts are, as a name service tells it or not."""

from __future__ import annotations

import socket
from collections.abc import Mapping

from holdfast_sidecar.components.network.round_trip import NEXT_LOOKUP_S, Hosts, SocketAddress


class NameService:
    """Knows some names at once, or takes its time over everything; numbers need none."""

    def __init__(self, known: Mapping[str, str], takes_s: float = 0.0) -> None:
        self.known = dict(known)
        self.takes_s = takes_s
        self.now = 0.0
        self.asked: list[str] = []
        self.hosts = Hosts(socket.AF_INET, self.look_up, lambda: self.now)

    def look_up(self, host: str, family: int, flags: int) -> SocketAddress:
        if host[0].isdecimal():
            return host, 0
        if flags & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME)
        self.asked.append(host)
        self.now += self.takes_s
        if host not in self.known:
            raise socket.gaierror(socket.EAI_AGAIN)
        return self.known[host], 0


def test_a_name_that_was_not_found_is_looked_up_again_after_a_while() -> None:
    names = NameService({})
    assert names.hosts.find(("pod", 7)) is None
    names.known["pod"] = "10.0.0.7"
    names.now = NEXT_LOOKUP_S - 1
    assert names.hosts.find(("pod", 7)) is None
    names.now = NEXT_LOOKUP_S
    assert names.hosts.find(("pod", 7)) == ("10.0.0.7", 7)
    assert names.hosts.find(("pod", 8)) == ("10.0.0.7", 8)
    assert names.asked == ["pod", "pod"]


def test_a_name_service_that_is_away_keeps_nobody_waiting_once_for_each_name() -> None:
    names = NameService({}, takes_s=5.0)
    places = [names.hosts.find((host, 7)) for host in ("p", "q", "10.0.0.7")]
    assert places == [None, None, ("10.0.0.7", 7)]
    assert names.asked == ["p"]
    names.now += NEXT_LOOKUP_S
    names.hosts.find(("q", 7))
    assert names.asked == ["p", "q"]
