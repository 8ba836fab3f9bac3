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
from holdfast.owned import owned_file
from holdfast.removing import rmdir, unlink
from holdfast_sidecar.config.paths import Places, make_state, open_shm_of_job
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.policy.election import HANDOVER_S

log = logging.getLogger(__name__)

MOST_BYTES = 64
"""Of what a lock says: one incarnation."""


STAND_IN = ".sidecar-lock"
"""Ends the name of what is locked in shared memory where the state directory takes no locks."""


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
    """Of the file that says who holds it; -1 where the state directory takes none."""
    predecessor: str
    """Incarnation of the one that held it last, which therefore is gone; empty: not known."""
    stand_in: Path | None = None
    """What is locked in its place, where the state directory's file system knows no locks."""
    stand_in_descriptor: int = -1

    def pass_on(self, incarnation: str) -> None:
        """Say who holds it, for whoever comes after: on a full disk that one waits a second."""
        with contextlib.suppress(OSError):
            os.ftruncate(self.descriptor, 0)
            os.pwrite(self.descriptor, incarnation.encode(), 0)

    def release(self) -> None:
        """Let another one have it."""
        if self.stand_in is not None:
            with contextlib.suppress(OSError):
                unlink(owned_file(self.stand_in))
                rmdir(owned_file(self.stand_in.parent))  # if nothing else of this job is there
                rmdir(owned_file(self.stand_in.parent.parent))
            os.close(self.stand_in_descriptor)
        if self.descriptor >= 0:
            os.close(self.descriptor)


def lock_node(places: Places, patience_s: float = HANDOVER_S) -> NodeLock:
    """Lock this node for one sidecar. BadInput when another one has it."""
    make_state(places)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(places.state / "sidecar.lock", flags, 0o600)
    except OSError as error:  # full, or read-only
        log.warning("can't open a lock in %s: %s", places.state, error.strerror)
        descriptor = -1
    until_s = time.monotonic() + patience_s
    is_told = False
    while True:
        try:
            return _take(places, descriptor)
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
                if descriptor >= 0:
                    os.close(descriptor)
                raise BadInput(
                    f"a sidecar already watches node {places.state.name!r} of job "
                    f"{places.state.parent.name!r} here: end that one first, or choose --node"
                ) from None
        time.sleep(0.05)


def _take(places: Places, descriptor: int) -> NodeLock:
    """Raises BlockingIOError while another sidecar has it."""
    stand_in, held = None, -1
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except (OSError, ValueError) as error:  # Lustre without -o flock, NFS without lockd; or no file
        # Not inside the node's directory: that goes with its launcher, which this one may outlive.
        stand_in = places.shm.parent / f"{places.shm.name}{STAND_IN}"
        held = _lock_beside(stand_in)
        log.info("%s takes no lock (%s): %s does", places.state, error, stand_in)
    before = ""
    with contextlib.suppress(OSError):
        before = os.pread(descriptor, MOST_BYTES, 0).decode(errors="replace")
    return NodeLock(descriptor, before, stand_in, held)


def _lock_beside(path: Path) -> int:
    """In shared memory, which is this machine's own and takes locks. Raises BlockingIOError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        try:
            folder = open_shm_of_job(path.parent, make=True)
        except FileNotFoundError:
            if not (root := path.parent.parent.parent).is_dir():
                raise BadInput(f"{root} is no directory: set paths.shm_dir to one") from None
            continue  # a launcher that ends is just removing it
        with contextlib.ExitStack() as undo:
            undo.callback(os.close, folder)
            try:
                held = os.open(path.name, flags, 0o600, dir_fd=folder)
            except FileNotFoundError:
                continue
            failed = undo.enter_context(contextlib.ExitStack())
            failed.callback(os.close, held)
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_still_named(held, path.name, folder):
                failed.pop_all()
                return held


def is_still_named(descriptor: int, name: str, folder: int) -> bool:
    """Whether an open file has its name yet: a lock on one that was removed protects nothing."""
    try:
        named = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), named)


def write_record(path: Path, record: SidecarRecord) -> None:
    """Write the record (0600, temporary name, rename); on a full disk there is none."""
    try:
        _write_record(path, record)
    except OSError as error:
        log.warning("the sidecar can't leave word of where it is found: %s", error)


def _write_record(path: Path, record: SidecarRecord) -> None:
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
