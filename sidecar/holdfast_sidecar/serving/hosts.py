"""By which names a sidecar may be asked that lets everybody on its machine read.

A page from anywhere, open in a browser on this machine (or at the other end of a tunnel to it), may
let its own name mean 127.0.0.1 a moment later, and then read along as if it were ours (DNS
rebinding). Such a browser still asks for that page's name; an address nobody can borrow.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection
from urllib.parse import urlsplit

from holdfast_sidecar.config.addresses import parse_advertise

LOCALHOST = "localhost"


def own_names(advertise: str) -> frozenset[str]:
    """Those of this machine, and the one that the settings give it."""
    given, _ = parse_advertise(advertise)
    return frozenset(_plain(name) for name in (LOCALHOST, socket.gethostname(), given) if name)


def is_named(host: str, names: Collection[str]) -> bool:
    """Whether this Host header has an address or one of these names. No browser sends none."""
    if not host:
        return True
    try:
        name = _plain(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False
    return name in names or name.endswith(f".{LOCALHOST}") or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _plain(name: str) -> str:
    """Without the dot that ends a name in full."""
    return name.lower().rstrip(".")
