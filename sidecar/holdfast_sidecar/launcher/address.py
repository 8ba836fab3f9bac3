"""Under which address other nodes reach this one."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

from holdfast_sidecar.coordination.address import parse_address

LOOPBACK = "127.0.0.1"


def own_address(given: str | None, redis_url: str) -> str:
    """The address given, else that of the interface on which Redis is reached.

    Every node reaches Redis, so that interface is the best guess; no packet is sent.
    """
    if given:
        return given
    hosts = parse_address(redis_url).hosts
    if not hosts:
        return LOOPBACK
    try:
        family, kind, _, _, target = socket.getaddrinfo(*hosts[0], type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except OSError:
        return socket.getfqdn()


def advertised(own: str, others: Iterable[str]) -> str:
    """The address to give to the other members of an attempt.

    A node that runs Redis itself reaches it on loopback, which is no address for the others.
    """
    if is_loopback(own) and not all(is_loopback(other) for other in others):
        return socket.getfqdn()
    return own


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach the address."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
