"""The certificate that callers see: two files, exchanged without a restart."""

from __future__ import annotations

import ssl
from pathlib import Path

from holdfast_sidecar.serving.followed import Followed


class Certificate:
    """Secures connections. Raises BadInput where the files are not a certificate and its key."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._kept = Followed([certificate, key], lambda: load(certificate, key))

    def context(self) -> ssl.SSLContext:
        """For the next connection."""
        return self._kept.current()


def load(certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS 1.2 or newer. Raises OSError (ssl's errors are such); never asks for a passphrase."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key, password=lambda: "")
    return context
