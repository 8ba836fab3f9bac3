"""From where this machine is reached: by itself alone or by others, and under which address."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

from holdfast_sidecar.coordination.address import parse_address
from holdfast_sidecar.listening import parse_listen
from holdfast_sidecar.settings import SidecarSettings

WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - to tell them apart, not to bind to them


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach the address."""
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def stays_within(address: str) -> bool:
    """Whether what is sent to this host:port stays within this machine."""
    try:
        return is_loopback(urlsplit(f"//{address}").hostname or "")
    except ValueError:
        return False


def interface_towards(redis_url: str) -> str:
    """Our address on the way to Redis; empty: there is no way, or it is a file. Sends no packet.

    Every node reaches Redis, so that interface is the best guess.
    """
    hosts = parse_address(redis_url).hosts if redis_url else ()
    return own_address_towards(*hosts[0]) if hosts else ""


def own_address_towards(host: str, port: int = 9) -> str:
    """Our address on the way to this host; empty: there is no way. Sends no packet."""
    try:
        family, kind, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except (OSError, ValueError):  # ValueError: no such name can be (UnicodeError)
        return ""


def told_address(sidecar: SidecarSettings, port: int, redis_url: str) -> str:
    """Where the others, and Prometheus, find what listens on this port: host:port, with
    `https://` before it where that is what they have to speak."""
    given_host, given_port = parse_advertise(sidecar.advertise)
    host = given_host or _own_host(sidecar.listen, redis_url)
    address = f"{bracketed(host)}:{given_port or port}"
    return f"https://{address}" if sidecar.tls_cert_file else address


def _own_host(listen: str, redis_url: str) -> str:
    host, _ = parse_listen(listen)
    if host not in WILDCARDS:
        return host
    own = interface_towards(redis_url)
    # Redis on this very machine is no way to others; our name is, where names are kept.
    return own if own and not is_loopback(own) else socket.gethostname()


def parse_advertise(given: str) -> tuple[str, int]:
    """Host and port, 0 where none is given; `10.1.2.3`, `node7:9750`, `[fd00::7]:9750`, `fd00::7`.

    Raises ValueError.
    """
    host, colon, port = given.rpartition(":")
    if not colon or (":" in host and not host.endswith("]")) or given.endswith("]"):
        return given.strip("[]"), 0
    if not host or not port.isdecimal() or not 0 < int(port) <= 65535:
        raise ValueError(f"{given!r} is neither HOST nor HOST:PORT")
    return host.strip("[]"), int(port)


def bracketed(host: str) -> str:
    """The host as it stands before a port."""
    return f"[{host}]" if ":" in host else host


def missing_protection(sidecar: SidecarSettings) -> str:
    """What is not set though other machines reach it; empty: nothing, or it was said aloud."""
    host, _ = parse_listen(sidecar.listen)
    if is_loopback(host) or sidecar.listen_insecure:
        return ""
    named = {
        "sidecar.token_file": sidecar.token_file,
        "sidecar.tls_cert_file": sidecar.tls_cert_file,
        "sidecar.tls_key_file": sidecar.tls_key_file,
    }
    return ", ".join(name for name, value in named.items() if not value)


def exposure(sidecar: SidecarSettings) -> str:
    """The one line about it, when it lacks protection; else empty."""
    missing = missing_protection(sidecar)
    return missing and (
        f"sidecar.listen = {sidecar.listen} lets other machines read along: set {missing}, or say "
        "--listen-insecure (sidecar.listen_insecure = true) where the network itself is guarded"
    )
