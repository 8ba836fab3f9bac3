"""Who may ask, and over what: what stands in the settings, opened."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from holdfast_sidecar.config.addresses import exposure, is_loopback, parse_listen
from holdfast_sidecar.config.settings import BadInput, SidecarSettings
from holdfast_sidecar.serving.certificate import Certificate
from holdfast_sidecar.serving.hosts import is_named, own_names
from holdfast_sidecar.serving.token import Token


@dataclass(frozen=True)
class Protection:
    """Neither token nor certificate: anybody who reaches the address reads along."""

    token: Token | None = None
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
    token = Token(Path(sidecar.token_file)) if sidecar.token_file else None
    return Protection(token, certificate, None if token else _names(sidecar))


def _names(sidecar: SidecarSettings) -> Collection[str] | None:
    """Beyond loopback a node has names that we don't know; its network is said to be guarded."""
    host, _ = parse_listen(sidecar.listen)
    return own_names(sidecar.advertise) if is_loopback(host) else None
