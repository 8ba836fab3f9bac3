"""Where other nodes' hosts are: each name looked up once, in the thread that sends."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable
from typing import Any

log = logging.getLogger(__name__)

Address = tuple[str, int]

SocketAddress = tuple[Any, ...]
"""As the socket module has it: address, port, and of IPv6 two numbers more."""

NEXT_LOOKUP_S = 30.0
"""After a name was not found: it may be published later, as that of a pod."""

SLOW_LOOKUP_S = 1.0
"""A name service that takes longer is away: nobody is asked or answered while it is waited for."""


def look_up(host: str, family: int, flags: int = 0) -> SocketAddress:
    """Where this host is. Raises OSError; ValueError where no such name can be."""
    found = socket.getaddrinfo(host, None, family, socket.SOCK_DGRAM, flags=flags)
    place: SocketAddress = found[0][4]
    return place


class Hosts:
    """The addresses of hosts, each looked up once.

    One that was not found is tried again later; when the name service was slow over it, no other
    name is looked up until then.
    """

    def __init__(
        self,
        family: int,
        look_up: Callable[[str, int, int], SocketAddress] = look_up,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._family = family
        self._look_up = look_up
        self._clock = clock
        self._known: dict[str, SocketAddress] = {}
        self._unknown_until_s: dict[str, float] = {}
        self._away_until_s = float("-inf")

    def find(self, address: Address) -> SocketAddress | None:
        """Where to send what is for this address; None: not known now."""
        host, port = address
        place = self._known.get(host) or self._find(host)
        return None if place is None else (place[0], port, *place[2:])

    def _find(self, host: str) -> SocketAddress | None:
        began_s = self._clock()
        if began_s < self._unknown_until_s.get(host, began_s):
            return None
        try:
            self._known[host] = self._look_up(host, self._family, socket.AI_NUMERICHOST)
        except (OSError, ValueError):
            if began_s >= self._away_until_s:
                self._ask_for(host, began_s)
        return self._known.get(host)

    def _ask_for(self, host: str, began_s: float) -> None:
        try:
            self._known[host] = self._look_up(host, self._family, 0)
        except (OSError, ValueError) as error:
            log.debug("no address of %s: %s", host, error)
            self._unknown_until_s[host] = self._clock() + NEXT_LOOKUP_S
            if self._clock() - began_s >= SLOW_LOOKUP_S:
                self._away_until_s = self._clock() + NEXT_LOOKUP_S
