"""Where a server of ours is to listen, as settings have it."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from holdfast_sidecar.config.settings import BadInput, SidecarSettings


def parse_listen(listen: str) -> tuple[str, int]:
    """Host and port; a bare port binds to loopback."""
    host, _, port = listen.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise BadInput(f"can't listen on {listen!r}: write it as HOST:PORT, e.g. 127.0.0.1:9750")
    return host.strip("[]") or "127.0.0.1", int(port)


# Where the coordination server is: parsing its URL, and saying it without its secret. Pure.
#
# redis://[user@]host[:port][/db]               rediss://…  the same over TLS
# unix:///path/to/socket[?db=0]
# redis+sentinel://host[:port],host[:port]/service[?db=0]       rediss+sentinel://… over TLS

REDIS_PORT = 6379
SENTINEL_PORT = 26379

SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel")
TLS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
OPTIONS = ("db", "sentinel_auth", *TLS_FILES)


@dataclass(frozen=True)
class ServerAddress:
    """A server's address, taken apart."""

    scheme: str
    hosts: tuple[tuple[str, int], ...] = ()
    """The server; with Sentinel, the sentinels."""
    path: str = ""
    service: str = ""
    """The name under which the sentinels know the master."""
    db: int = 0
    user: str = ""
    password: str = field(default="", repr=False)
    sentinel_auth: bool = False
    """The sentinels ask for the same user and password as the server."""
    tls_files: tuple[tuple[str, str], ...] = ()

    @property
    def uses_tls(self) -> bool:
        """Whether every connection is encrypted."""
        return self.scheme.startswith("rediss")

    @property
    def uses_sentinel(self) -> bool:
        """Whether the master must be asked for first."""
        return self.scheme.endswith("+sentinel")


def parse_address(url: str) -> ServerAddress:
    """Take a URL apart; BadInput when it is none of the known forms. Messages show no secret."""
    parts = _split(url)
    if parts.scheme not in SCHEMES or parts.netloc.count("[") != parts.netloc.count("]"):
        raise BadInput(
            f"not a Redis URL: {describe(url)}; known forms: "
            "redis://host:port, rediss://host:port, unix:///path, "
            "redis+sentinel://host:port,host:port/service"
        )
    is_unix = parts.scheme == "unix"
    if parts.fragment or "@" in parts.query or ("@" in parts.path and not is_unix):
        raise BadInput(
            f"cannot read {describe(url)}: "
            "write / ? # @ inside a user or password as %2F %3F %23 %40"
        )
    options = _options(url, parts.query)
    userinfo, _, location = parts.netloc.rpartition("@")
    user, _, password = userinfo.partition(":")
    path = unquote(parts.path)
    uses_sentinel = parts.scheme.endswith("+sentinel")
    if is_unix and not path:
        raise BadInput(f"no socket in {describe(url)}; write unix:///path/to/redis.sock")
    if uses_sentinel and not path.strip("/"):
        raise BadInput(
            f"no service in {describe(url)}; write redis+sentinel://host:port,host:port/service"
        )
    names_db = not is_unix and not uses_sentinel and path.strip("/")
    return ServerAddress(
        scheme=parts.scheme,
        hosts=() if is_unix else _hosts(url, location, uses_sentinel),
        path=path if is_unix else "",
        service=path.strip("/") if uses_sentinel else "",
        db=_number(url, path.strip("/") if names_db else options.get("db", "0"), "database"),
        user=unquote(user),
        password=unquote(password),
        sentinel_auth=options.get("sentinel_auth", "0") not in ("0", "false", "no"),
        tls_files=tuple((name, options[name]) for name in TLS_FILES if name in options),
    )


def describe(url: str) -> str:
    """The URL as far as it may be logged: without user, password and options."""
    scheme, separator, rest = url.partition("://")
    if not separator or not scheme.replace("+", "").isalnum():
        return "(not a URL)"
    if not rest.startswith("/"):  # a password may hold any of / ? # by mistake
        rest = rest.rpartition("@")[2]
    return f"{scheme}://{rest.partition('?')[0].partition('#')[0]}"


def without_password(url: str) -> str:
    """The URL as it may be kept: it leads to the same server, user and options included."""
    address = parse_address(url)
    if not address.password:
        return url
    userinfo = _split(url).netloc.rpartition("@")[0]
    user = userinfo.partition(":")[0]
    return url.replace(f"//{userinfo}@", f"//{user}@" if user else "//", 1)


def _split(url: str) -> SplitResult:
    """What urlsplit does, but for several hosts too: newer Pythons refuse `a,[::1]:2` there."""
    scheme, separator, rest = url.partition("://")
    rest, _, fragment = rest.partition("#")
    rest, _, query = rest.partition("?")
    netloc, slash, path = rest.partition("/")
    return SplitResult(scheme.lower() if separator else "", netloc, slash + path, query, fragment)


def _options(url: str, query: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(options.keys() - set(OPTIONS))
    if unknown:
        raise BadInput(
            f"unknown option {unknown[0]!r} in {describe(url)}; known: {', '.join(OPTIONS)}"
        )
    return options


def _hosts(url: str, location: str, uses_sentinel: bool) -> tuple[tuple[str, int], ...]:
    default_port = SENTINEL_PORT if uses_sentinel else REDIS_PORT
    hosts = tuple(_host(url, text, default_port) for text in location.split(","))
    if len(hosts) > 1 and not uses_sentinel:
        raise BadInput(f"one host only in {describe(url)}; several need redis+sentinel://")
    return hosts


def _host(url: str, text: str, default_port: int) -> tuple[str, int]:
    if text.startswith("["):  # an IPv6 address
        name, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    else:
        name, _, port = text.partition(":")
    if not name:
        raise BadInput(f"no host in {describe(url)}; write {url.partition(':')[0]}://host:port")
    return name, _number(url, port, "port") if port else default_port


def _number(url: str, text: str, what: str) -> int:
    if not text.isdecimal():
        raise BadInput(f"the {what} in {describe(url)} must be a number")
    return int(text)


# From where this machine is reached: by itself alone or by others, and under which address.

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
