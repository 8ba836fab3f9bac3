"""Who may ask, and over what: what stands in the settings, opened."""

from __future__ import annotations

import hmac
import ipaddress
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar
from urllib.parse import urlsplit

from holdfast_sidecar.config.addresses import exposure, is_loopback, parse_advertise, parse_listen
from holdfast_sidecar.config.settings import BadInput, SidecarSettings

logger = logging.getLogger(__name__)


# What a file holds that is exchanged while we run: a token, a certificate.

T = TypeVar("T")

Stamp = tuple[tuple[int, int, int], ...]


class WatchedFile(Generic[T]):
    """Made of these files, and made anew when one of them changes.

    Whoever exchanges two files does it one after the other: what does not fit together is told once
    and the former goes on being used. `make` raises OSError or ValueError, of which ssl's are some.
    """

    def __init__(self, paths: Sequence[Path], make: Callable[[], T]) -> None:
        self._paths = paths
        self._make = make
        self._lock = threading.Lock()
        self._stamp = self._read_stamp()
        self._made = self._first()

    def current(self) -> T:
        """As the files have it now."""
        with self._lock:
            try:
                stamp = self._read_stamp()
            except BadInput as error:
                self._complain(str(error), ())
                return self._made
            if stamp != self._stamp:
                self._renew(stamp)
            return self._made

    def _first(self) -> T:
        try:
            return self._make()
        except (OSError, ValueError) as error:
            raise BadInput(f"can't use {self._names()}: {_words(error)}") from None

    def _renew(self, stamp: Stamp) -> None:
        try:
            self._made = self._make()
        except (OSError, ValueError) as error:
            self._complain(f"can't use {self._names()}: {_words(error)}", stamp)
            return
        self._stamp = stamp
        logger.info("read %s again: it has changed", self._names())

    def _complain(self, words: str, stamp: Stamp) -> None:
        """Once, until the files change again."""
        if stamp != self._stamp:
            logger.error("%s; going on with what was there before", words)
        self._stamp = stamp

    def _read_stamp(self) -> Stamp:
        try:
            facts = [path.stat() for path in self._paths]
        except OSError as error:
            raise BadInput(f"can't read {error.filename}: {error.strerror}") from None
        return tuple((fact.st_ino, fact.st_mtime_ns, fact.st_size) for fact in facts)

    def _names(self) -> str:
        return " with ".join(map(str, self._paths))


def _words(error: Exception) -> str:
    """ssl's own words name a line of its C source."""
    return getattr(error, "strerror", None) or str(error)


# The certificate that callers see: two files, exchanged without a restart.


class Certificate:
    """Secures connections. Raises BadInput where the files are not a certificate and its key."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._kept = WatchedFile([certificate, key], lambda: load(certificate, key))

    def context(self) -> ssl.SSLContext:
        """For the next connection."""
        return self._kept.current()


def load(certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS 1.2 or newer. Raises OSError (ssl's errors are such); never asks for a passphrase."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key, password=lambda: "")
    return context


# The token that callers show: the one line of a file, exchanged without a restart.

LEAST = 16
"""Characters: shorter ones are guessed. `openssl rand -hex 32` makes 64."""


class BearerToken:
    """Who shows it is let in. Raises BadInput where the file holds none."""

    def __init__(self, path: Path) -> None:
        self._kept = WatchedFile([path], lambda: parse_token(path.read_bytes()))

    def admits(self, authorization: str) -> bool:
        """Whether this Authorization header shows it; how long that takes tells nothing of it."""
        scheme, _, shown = authorization.partition(" ")
        given = shown.strip().encode("latin-1", "replace")
        return scheme.lower() == "bearer" and hmac.compare_digest(given, self._kept.current())


def parse_token(content: bytes) -> bytes:
    """The token in a file. Raises ValueError, with nothing of it in the words."""
    token = content.strip()
    if len(token) < LEAST:
        raise ValueError(f"a token has at least {LEAST} characters (openssl rand -hex 32)")
    if any(not 0x21 <= byte <= 0x7E for byte in token):
        raise ValueError("a token is one line of letters, digits and signs, without blanks")
    return token


# By which names a sidecar may be asked that lets everybody on its machine read.
#
# A page from anywhere, open in a browser on this machine (or at the other end of a tunnel to it),
# may let its own name mean 127.0.0.1 a moment later, and then read along as if it were ours (DNS
# rebinding). Such a browser still asks for that page's name; an address nobody can borrow.

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


@dataclass(frozen=True)
class Protection:
    """Neither token nor certificate: anybody who reaches the address reads along."""

    token: BearerToken | None = None
    certificate: Certificate | None = None
    names: Collection[str] | None = None
    """By which it may be asked, other than by address; None: by any."""

    def knows(self, authorization: str) -> bool:
        """Whether the caller with this header may see all."""
        return self.token is None or self.token.admits(authorization)

    def is_meant(self, host: str) -> bool:
        """Whether the caller with this Host header means us."""
        return self.names is None or is_named(host, self.names)


def open_protection(sidecar: SidecarSettings) -> Protection:
    """What the settings ask for. Raises BadInput, also where others would read along unnoticed."""
    if bool(sidecar.tls_cert_file) != bool(sidecar.tls_key_file):
        raise BadInput("sidecar.tls_cert_file and sidecar.tls_key_file go together: set both")
    if problem := exposure(sidecar):
        raise BadInput(problem)
    certificate = None
    if sidecar.tls_cert_file:
        certificate = Certificate(Path(sidecar.tls_cert_file), Path(sidecar.tls_key_file))
    token = BearerToken(Path(sidecar.token_file)) if sidecar.token_file else None
    return Protection(token, certificate, None if token else _names(sidecar))


def _names(sidecar: SidecarSettings) -> Collection[str] | None:
    """Beyond loopback a node has names that we don't know; its network is said to be guarded."""
    host, _ = parse_listen(sidecar.listen)
    return own_names(sidecar.advertise) if is_loopback(host) else None
