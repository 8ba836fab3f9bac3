"""A server of the real kind on loopback, and ways to ask it."""

from __future__ import annotations

import http.client
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from holdfast_sidecar.export.access import Protection
from holdfast_sidecar.export.http_server import Server
from holdfast_sidecar.export.routes import Exporter, HealthRoute, MetricsRoute


@dataclass(frozen=True)
class Asked:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)


@contextmanager
def serving(
    protection: Protection | None = None, listen: str = "127.0.0.1:0"
) -> Iterator[tuple[Exporter, int]]:
    """An exporter that answers, and its port."""
    server = Server(listen, protection)
    exporter = Exporter((MetricsRoute("job"), HealthRoute()), server=server)
    exporter.serve()
    try:
        yield exporter, server.port
    finally:
        exporter.close()


def ask(
    port: int,
    path: str,
    method: str = "GET",
    trusted: Path | None = None,
    host: str = "127.0.0.1",
    **headers: str,
) -> Asked:
    """One request; over TLS where `trusted` says whom to believe."""
    if trusted is None:
        connection = http.client.HTTPConnection(host, port, timeout=5)
    else:
        context = ssl.create_default_context(cafile=trusted)
        connection = http.client.HTTPSConnection(host, port, timeout=5, context=context)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, headers=named)
        answer = connection.getresponse()
        told = {name.lower(): value for name, value in answer.getheaders()}
        return Asked(answer.status, told, answer.read())
    finally:
        connection.close()


def make_certificate(folder: Path, name: str = "holdfast") -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that vouches for itself, and its key."""
    certificate, key = folder / "tls.crt", folder / "tls.key"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", f"/CN={name}"),
            *("-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"),
            *("-out", str(certificate), "-keyout", str(key)),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key
