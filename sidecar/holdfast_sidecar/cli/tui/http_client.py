"""How sidecars are asked: which certificates are believed, and what token is shown to whom."""

from __future__ import annotations

import http.client
import re
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol

from holdfast_sidecar.cli.tui.text import visible
from holdfast_sidecar.config.addresses import stays_within
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.export.access import parse_token
from holdfast_sidecar.export.live.packing import unpack
from holdfast_sidecar.export.live.view import LiveView

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True)
class Access:
    """As files say; empty: no token, the machine's own authorities."""

    token_file: str = ""
    ca_file: str = ""
    """Authorities to believe, in place of the machine's."""
    pinned_file: str = ""
    """The sidecars' own certificate, where no authorities are given: whoever has its key is it,
    under whatever address."""
    only_secured: bool = False
    """Whether the token is shown under TLS alone, on this machine too."""

    def shows_token_to(self, address: str) -> bool:
        """Not where it could be read along: who listens there is said by whoever writes to Redis,
        and the way to other machines is not ours."""
        return address.startswith("https://") or (not self.only_secured and stays_within(address))

    def headers(self, address: str) -> dict[str, str]:
        """What is shown there; read anew each time, as the file may be exchanged."""
        if not self.token_file or not self.shows_token_to(address):
            return {}
        return {"Authorization": f"Bearer {read_token(Path(self.token_file))}"}

    def context(self) -> ssl.SSLContext:
        """For https. BadInput where a file can't be used."""
        path = self.ca_file or self.pinned_file
        try:
            if self.ca_file:
                return ssl.create_default_context(cafile=self.ca_file)
            if self.pinned_file:
                return _pinned(Path(self.pinned_file).read_text(encoding="ascii"))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise BadInput(f"{path} can't be used as a certificate: {reason}") from None
        return ssl.create_default_context()


def _pinned(text: str) -> ssl.SSLContext:
    """Believes the first certificate in this text, and nobody else. Its name need not be that of
    the address: a certificate for node7 is met at 127.0.0.1, too."""
    first = _PEM.search(text)
    if first is None:
        raise ValueError("it holds none")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=first[0])
    return context


def read_token(path: Path) -> str:
    """The one line in a file. BadInput says what is wrong, and nothing of what it holds."""
    try:
        return parse_token(path.read_bytes()).decode("ascii")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"can't read the token in {path}: {reason}") from None


# Where views come from: whoever tells one. The sidecar is `sidecar_source`, a recording `replay`;
# here is the one for tests.


class Away(Exception):
    """Nobody tells a view now; one line says why. It may pass."""


class ViewSource(Protocol):
    """Whoever tells views."""

    @property
    def name(self) -> str:
        """Who it is, in words."""

    def read(self) -> LiveView:
        """The newest view, within seconds; Away where there is none."""


@dataclass
class MemorySource:
    """Tells these, one after the other, and the last one from then on."""

    told: Sequence[LiveView | Away] = field(default_factory=list)
    name: str = "memory"
    reads: int = 0

    def read(self) -> LiveView:
        """The next one, or the trouble that stands in its place."""
        if not self.told:
            raise Away("nothing is told")
        one = self.told[min(self.reads, len(self.told) - 1)]
        self.reads += 1
        if isinstance(one, Away):
            raise one
        return one


# One HTTP request for a view: bounded in time and in size, through no proxy, to nobody else.

PATH = "/live.json"

TIMEOUT_S = 2.0
"""A sidecar answers within milliseconds; who needs longer is as good as away."""

MOST_BYTES = 16 * 2**20
"""Unpacked; a view of 1,024 ranks has less than one."""

CHUNK = 2**16

UNSHOWN = (
    "over plain http it is shown to sidecars of this machine alone; let that one speak TLS"
    " (sidecar.tls_cert_file), or name the near end of a tunnel to it with --url"
)


class AccessRefused(Away):
    """Somebody answers, and won't tell: a token, a certificate or the version is wrong. That does
    not pass by itself."""


class ViewReply(Protocol):
    """One sidecar's answer to one question."""

    def __call__(self, address: str, access: Access) -> LiveView:
        """Its view; Away where there is none."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *given: Any, **named: Any) -> None:
        """None of ours redirects, and a token must not go elsewhere."""


def ask(address: str, access: Access) -> LiveView:
    """The view of the sidecar at host:port, or at https://host:port. Away, Refused, BadInput."""
    try:
        view = unpack(_fetch(address, access))
    except urllib.error.HTTPError as error:
        raise _refused(address, access, error.code) from None
    except (OSError, http.client.HTTPException, ValueError, zlib.error) as error:
        raise _away(address, error) from None
    if view is None:
        raise Away(f"{address} answers with something that is no view")
    return view


def _fetch(address: str, access: Access) -> bytes:
    url = f"{address if address.startswith('https://') else f'http://{address}'}{PATH}"
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({}), _NoRedirect()]
    if url.startswith("https:"):
        handlers.append(urllib.request.HTTPSHandler(context=access.context()))
    headers = {"Accept-Encoding": "gzip", **access.headers(address)}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - http and https alone
    with urllib.request.build_opener(*handlers).open(request, timeout=TIMEOUT_S) as answer:
        body = read_all(answer.read1, time.monotonic, TIMEOUT_S)
        return unzipped(body) if answer.headers.get("Content-Encoding") == "gzip" else body


def read_all(read: Callable[[int], bytes], clock: Callable[[], float], within_s: float) -> bytes:
    """Everything, or ValueError: whoever drips holds nobody up."""
    until_s, body = clock() + within_s, bytearray()
    while chunk := read(CHUNK):
        body += chunk
        if len(body) > MOST_BYTES:
            raise ValueError("its answer is too large")
        if clock() > until_s:
            raise ValueError("its answer takes too long")
    return bytes(body)


def unzipped(body: bytes) -> bytes:
    """The answer as it was; ValueError where that is too large."""
    inflating = zlib.decompressobj(16 + zlib.MAX_WBITS)
    plain = inflating.decompress(body, MOST_BYTES)
    if inflating.unconsumed_tail:
        raise ValueError("its answer is too large")
    return plain


def _refused(address: str, access: Access, code: int) -> Away:
    if code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        if access.token_file and not access.shows_token_to(address):
            return AccessRefused(f"{address} wants a token: {UNSHOWN}")
        return AccessRefused(
            f"{address} wants a token, or another one: name its file with --token-file"
        )
    if code == HTTPStatus.NOT_FOUND:
        return AccessRefused(f"{address} serves no {PATH}: it is no sidecar, or an older one")
    return Away(f"{address} answers with HTTP status {code}")


def _away(address: str, error: Exception) -> Away:
    cause = getattr(error, "reason", error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return AccessRefused(
            f"{address} has a certificate that is not believed: name its CA (--ca-file)"
        )
    words = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
    return Away(f"{address} does not answer: {visible(words)}")


def address_of(url: str) -> str:
    """What `ask` takes, of what people write: an address, or that of a page. BadInput."""
    try:
        parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or parts.scheme not in ("http", "https") or parts.username is not None:
        raise BadInput(f"{url!r} is no address of a sidecar: write http://HOST:PORT")
    if port is None:
        raise BadInput(f"{url!r} names no port: write {parts.scheme}://{host}:PORT")
    return f"https://{parts.netloc}" if parts.scheme == "https" else parts.netloc
