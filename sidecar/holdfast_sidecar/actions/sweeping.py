"""Clears up after a launcher that died: what its dead ranks left running, and the shared memory.

Ranks die with their launcher by themselves. What outlives them are processes they started:
DataLoader workers and compile workers orphaned by SIGKILL. They are known by their session, which
is the rank's own (the launcher starts every rank in a session of its own).
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.identity import ProcessIdentity, ProcessStatus, read_status
from holdfast.snapshot_file import COPIES_DIRECTORY, OWN_DIRECTORY
from holdfast_sidecar.pages import NAME, is_unlocked, open_process
from holdfast_sidecar.resource_trackers import is_tracker, wait_for_trackers

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Leftover:
    """A process that belongs to a dead rank's session."""

    process: ProcessIdentity
    rank: ProcessIdentity


def find_leftovers(
    statuses: Iterable[tuple[int, ProcessStatus]], dead_ranks: Iterable[ProcessIdentity]
) -> list[Leftover]:
    """Processes of the dead ranks' sessions that started after the rank did.

    The kernel doesn't hand out a pid as long as a session of that number exists, so a session
    whose members are older than the rank is somebody else's from before.
    """
    by_session = {rank.pid: rank for rank in dead_ranks}
    return [
        Leftover(ProcessIdentity(pid, status.start_ticks), rank)
        for pid, status in statuses
        if (rank := by_session.get(status.session)) is not None
        and pid != rank.pid
        and status.start_ticks >= rank.start_ticks
        and status.state not in ("Z", "X")
    ]


def read_statuses(proc: Path = Path("/proc")) -> Iterator[tuple[int, ProcessStatus]]:
    """Every process that can be seen."""
    for directory in proc.iterdir():
        if directory.name.isdecimal():
            try:
                status = read_status(int(directory.name), proc)
            except PermissionError:
                continue
            if status is not None:
                yield int(directory.name), status


def end_leftovers(leftovers: Iterable[Leftover]) -> bool:
    """Kill them; whether any was there. Resource trackers may first do their work."""
    found = list(leftovers)
    trackers = [each for each in found if is_tracker(each.process.pid)]
    ended = [_end(each) for each in found if each not in trackers]
    wait_for_trackers(each.process.pid for each in trackers)
    ended += [_end(each) for each in trackers]
    return any(ended)


def _end(leftover: Leftover) -> bool:
    """Kill it through a handle whose start time was compared; whether it was still there."""
    pidfd = open_process(leftover.process.pid, leftover.process.start_ticks)
    if pidfd is None:
        return False
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(pidfd)
    logger.warning("ended process %s, left over by rank process %s", *_names(leftover))
    return True


@contextmanager
def unowned(lock: Path) -> Iterator[bool]:
    """Whether no launcher holds this node of this job; none can take it within the block."""
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        yield False
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(descriptor)


def remove_shared_memory(directory: Path, lock: Path) -> bool:
    """Remove this node's pages and slots; not while any owner lives, be it a rank or a new
    launcher, nor while a slot is written or read."""
    with unowned(lock) as is_unowned:
        if not is_unowned or not _all_unlocked(directory) or not _all_slots_unused(directory):
            return False
        shutil.rmtree(directory)
    for parent in (directory.parent, directory.parent.parent):
        try:
            parent.rmdir()  # the job's directory, then the user's: only when nobody else is there
        except OSError:
            break
    return True


def has_new_owner(lock: Path) -> bool:
    """Whether a living launcher holds this node of this job."""
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not is_unlocked(descriptor)
    finally:
        os.close(descriptor)


def _all_unlocked(directory: Path) -> bool:
    for path in directory.iterdir():
        if not NAME.fullmatch(path.name):
            continue
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if not is_unlocked(descriptor):
                return False
        finally:
            os.close(descriptor)
    return True


def _all_slots_unused(directory: Path) -> bool:
    """Whether nobody holds a slot's lock, not even to read: a checkpoint may still be written from
    it, and the next slot be opened by its name."""
    for folder in (OWN_DIRECTORY, COPIES_DIRECTORY):
        for path in (directory / folder).glob("rank-*"):
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except OSError:
                continue
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            finally:
                os.close(descriptor)
    return True


def _names(leftover: Leftover) -> tuple[str, str]:
    return str(leftover.process), str(leftover.rank)
