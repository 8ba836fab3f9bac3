"""The record of the running sidecar, and the lock that lets only one watch a node of a job."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path

from holdfast.identity import read_identity
from holdfast_sidecar.bad_input import BadInput
from holdfast_sidecar.decisions.namesake import HANDOVER_S
from holdfast_sidecar.places import Places

log = logging.getLogger(__name__)

MOST_BYTES = 64
"""Of what a lock says: one incarnation."""


@dataclass(frozen=True)
class SidecarRecord:
    """Where the sidecar is found; `launcher_pid` 0: it belongs to no launcher."""

    job: str
    node: str
    launcher_pid: int
    metrics_address: str = ""
    unserved: str = ""
    """Why it has none, and how to mend it."""


@dataclass(frozen=True)
class NodeLock:
    """Held by the one sidecar that watches this node from this state directory."""

    descriptor: int
    predecessor: str
    """Incarnation of the one that held it last, which therefore is gone; empty: not known."""

    def pass_on(self, incarnation: str) -> None:
        """Say who holds it, for whoever comes after: on a full disk that one waits a second."""
        with contextlib.suppress(OSError):
            os.ftruncate(self.descriptor, 0)
            os.pwrite(self.descriptor, incarnation.encode(), 0)

    def release(self) -> None:
        """Let another one have it."""
        os.close(self.descriptor)


def lock_node(places: Places, patience_s: float = HANDOVER_S) -> NodeLock:
    """Lock this node for one sidecar. BadInput when another one has it."""
    places.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = places.state / "sidecar.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    until_s = time.monotonic() + patience_s
    is_told = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            before = os.pread(descriptor, MOST_BYTES, 0).decode(errors="replace")
            return NodeLock(descriptor, before)
        except BlockingIOError:
            if not is_told:
                log.warning(
                    "a sidecar already watches node %r of job %r here: waiting up to %g s, in case "
                    "it is leaving",
                    places.state.name,
                    places.state.parent.name,
                    patience_s,
                )
                is_told = True
            if time.monotonic() >= until_s:
                os.close(descriptor)
                raise BadInput(
                    f"a sidecar already watches node {places.state.name!r} of job "
                    f"{places.state.parent.name!r} here: end that one first, or choose --node"
                ) from None
        time.sleep(0.05)


def write_record(path: Path, record: SidecarRecord) -> None:
    """Write the record (0600, temporary name, rename)."""
    me = read_identity()
    content = {
        "pid": os.getpid(),
        "start_ticks": 0 if me is None else me.start_ticks,
        "job": record.job,
        "node": record.node,
        "launcher_pid": record.launcher_pid,
        "metrics_address": record.metrics_address,
        "unserved": record.unserved,
    }
    temporary = path.with_suffix(".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(content, file)
    temporary.replace(path)
