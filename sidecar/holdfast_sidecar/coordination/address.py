"""Where the coordination server is: parsing its URL, and saying it without its secret. Pure.

redis://[user@]host[:port][/db]               rediss://…  the same over TLS
unix:///path/to/socket[?db=0]
redis+sentinel://host[:port],host[:port]/service[?db=0]       rediss+sentinel://… over TLS
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, unquote

from holdfast_sidecar.bad_input import BadInput

REDIS_PORT = 6379
SENTINEL_PORT = 26379

SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel")
TLS_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
OPTIONS = ("db", "sentinel_auth", *TLS_FILES)


@dataclass(frozen=True)
class Address:
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


def parse_address(url: str) -> Address:
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
    return Address(
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
