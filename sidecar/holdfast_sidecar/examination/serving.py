"""Whether a sidecar would serve under these settings, and to whom."""

from __future__ import annotations

from holdfast_sidecar.bad_input import BadInput
from holdfast_sidecar.examination.check import FAIL, NOTE, OK, Check
from holdfast_sidecar.listening import parse_listen
from holdfast_sidecar.reach import is_loopback
from holdfast_sidecar.serving.protection import open_protection
from holdfast_sidecar.settings import SidecarSettings

WHAT = "sidecar.listen"


def check_serving(sidecar: SidecarSettings) -> Check:
    """Open what it would open, its port apart: a sidecar may well listen there now."""
    try:
        host, _ = parse_listen(sidecar.listen)
        protection = open_protection(sidecar)
    except BadInput as error:
        return Check(WHAT, FAIL, str(error))
    if is_loopback(host):
        return Check(
            WHAT,
            NOTE,
            f"{sidecar.listen}: for this machine alone. A Prometheus elsewhere, and a job of"
            " several nodes, want an address that others reach (docs/prometheus.md)",
        )
    how = "over TLS" if protection.certificate else "in the clear"
    who = "to whoever has the token" if protection.token else "to everybody who reaches it"
    return Check(WHAT, OK, f"{sidecar.listen}: {how}, {who}")
