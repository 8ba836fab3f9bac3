"""Whether a sidecar would serve under these settings, and to whom."""

from __future__ import annotations

import json
from pathlib import Path

from holdfast.identity import ProcessIdentity, is_alive
from holdfast_sidecar.config.addresses import is_loopback, parse_listen
from holdfast_sidecar.config.paths import find
from holdfast_sidecar.config.settings import BadInput, SidecarSettings
from holdfast_sidecar.examination.check import FAIL, NOTE, OK, Check
from holdfast_sidecar.export.access import Protection, open_protection
from holdfast_sidecar.export.http_server import PortTaken, Server

WHAT = "sidecar.listen"


def check_serving(sidecar: SidecarSettings, state: Path) -> Check:
    """Open what it would open. state: of all jobs here, whose sidecars may well listen now."""
    try:
        host, port = parse_listen(sidecar.listen)
        protection = open_protection(sidecar)
        Server(sidecar.listen, protection).close()
    except PortTaken:
        return _taken(port, state)
    except BadInput as error:
        return Check(WHAT, FAIL, str(error))
    return _heard(sidecar.listen, host, protection)


def _taken(port: int, state: Path) -> Check:
    for record in find(state, "*/*/sidecar.json"):
        if _is_at(port, record):
            return Check(
                WHAT,
                NOTE,
                f"port {port} is the sidecar's of job {record.parent.parent.name}: it serves there;"
                " another job on this node needs another port",
            )
    return Check(
        WHAT,
        FAIL,
        f"port {port} is taken: a sidecar would serve nothing, no metrics and no page (`ss -ltnp`"
        " says by whom)",
    )


def _is_at(port: int, record: Path) -> bool:
    """Whether the sidecar of this record lives and serves at that port."""
    try:
        told = json.loads(record.read_text())
        at = str(told["metrics_address"]).rpartition(":")[2]
        return at == str(port) and is_alive(
            ProcessIdentity(int(told["pid"]), int(told["start_ticks"]))
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _heard(listen: str, host: str, protection: Protection) -> Check:
    if is_loopback(host):
        return Check(
            WHAT,
            NOTE,
            f"{listen}: for this machine alone. A Prometheus elsewhere, and a job of"
            " several nodes, want an address that others reach (docs/prometheus.md)",
        )
    how = "over TLS" if protection.certificate else "in the clear"
    who = "to whoever has the token" if protection.token else "to everybody who reaches it"
    return Check(WHAT, OK, f"{listen}: {how}, {who}")
