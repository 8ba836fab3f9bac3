"""Who may ask, and over what: what stands in the settings, opened."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast_sidecar.bad_input import BadInput
from holdfast_sidecar.reach import exposure
from holdfast_sidecar.serving.certificate import Certificate
from holdfast_sidecar.serving.token import Token
from holdfast_sidecar.settings import SidecarSettings


@dataclass(frozen=True)
class Protection:
    """None of both: anybody who reaches the address reads along."""

    token: Token | None = None
    certificate: Certificate | None = None

    def knows(self, authorization: str) -> bool:
        """Whether the caller with this header may see all."""
        return self.token is None or self.token.admits(authorization)


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
    return Protection(token, certificate)
