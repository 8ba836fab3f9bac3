"""Under which address other nodes reach this one."""

from __future__ import annotations

import socket
from collections.abc import Iterable

from holdfast_sidecar.config.addresses import interface_towards, is_loopback, parse_address

LOOPBACK = "127.0.0.1"


def own_address(given: str | None, redis_url: str) -> str:
    """The address given, else that of the interface on which Redis is reached."""
    if given:
        return given
    if not parse_address(redis_url).hosts:
        return LOOPBACK
    return interface_towards(redis_url) or socket.getfqdn()


def advertised(own: str, others: Iterable[str]) -> str:
    """The address to give to the other members of an attempt.

    A node that runs Redis itself reaches it on loopback, which is no address for the others.
    """
    if is_loopback(own) and not all(is_loopback(other) for other in others):
        return socket.getfqdn()
    return own
