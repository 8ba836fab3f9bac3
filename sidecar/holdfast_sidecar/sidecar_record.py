"""The record of the running sidecar, and the lock that lets only one watch a node of a job."""

from __future__ import annotations

import fcntl
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from holdfast.identity import read_identity
from holdfast_sidecar.bad_input import BadInput
from holdfast_sidecar.places import Places

HANDOVER_S = 5.0
"""A sidecar that is leaving gives up its lease first; its successor waits that long for it."""


@dataclass(frozen=True)
class SidecarRecord:
    """Where the sidecar is found; `launcher_pid` 0: it belongs to no launcher."""

    job: str
    node: str
    launcher_pid: int
    metrics_address: str = ""
    unserved: str = ""
    """Why it has none, and how to mend it."""


def lock_node(places: Places, patience_s: float = HANDOVER_S) -> int:
    """Lock this node for one sidecar; the descriptor holds it. BadInput when another one has it."""
    places.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = places.state / "sidecar.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    until_s = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except BlockingIOError:
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
