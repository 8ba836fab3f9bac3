"""Clears up after a launcher that died: what its dead ranks left running, and the shared memory.

Ranks die with their launcher by themselves. What outlives them are processes they started:
DataLoader workers and compile workers orphaned by SIGKILL. They are known by their session, which
is the rank's own (the launcher starts every rank in a session of its own).
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.ending_processes import signal_handle
from holdfast.identity import ProcessIdentity, ProcessStatus, read_status
from holdfast.own_directory import NotPrivate, open_node
from holdfast.permit import Handle, Licence, NotPermitted, Permit
from holdfast.snapshot_file import COPIES_DIRECTORY, OWN_DIRECTORY, open_slot_file
from holdfast_sidecar.config.paths import remove_node
from holdfast_sidecar.linux.process import is_tracker, wait_for_trackers
from holdfast_sidecar.pages import is_unlocked, open_process

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
        permit = left_by(leftover, pidfd)
        signal_handle(permit)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(pidfd)
    logger.warning("ended process %s: %s", leftover.process, permit.proof)
    return True


def left_by(leftover: Leftover, pidfd: int) -> Permit:
    """To kill what a dead rank left running, which is held open. Raises NotPermitted where it is in
    that rank's session no more, or the rank lives."""
    process, rank = leftover.process, leftover.rank
    status, leader = read_status(process.pid), read_status(rank.pid)
    if status is None or status.session != rank.pid or status.start_ticks != process.start_ticks:
        raise NotPermitted(f"process {process} is not in the session of rank process {rank}")
    if leader is not None and not (leader.is_ending or leader.is_killed or leader.state in "ZX"):
        raise NotPermitted(f"rank process {rank} lives, or another has its pid")
    proof = f"left over by rank process {rank}"
    return Permit(Licence.OWN_RANK, Handle(pidfd, signal.SIGKILL), proof)


@contextmanager
def unowned(lock: Path) -> Iterator[bool]:
    """Whether no launcher holds this node of this job; none can take it within the block."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        folder = open_node(lock.parent)
    except (FileNotFoundError, NotPrivate):
        yield False
        return
    try:
        descriptor = os.open(lock.name, flags, 0o600, dir_fd=folder)
    except FileNotFoundError:
        yield False
        return
    finally:
        os.close(folder)
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
        if not is_unowned or not all_unlocked(directory):
            return False
        return remove_node(directory)


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


def all_unlocked(directory: Path) -> bool:
    """Whether nobody holds the lock of a page or slot in a node's directory, not even to read: a
    checkpoint may still be written from it, and the next slot be opened by its name.

    What can't be looked at counts as held. Raises OSError where the directory can't be read.
    """
    pages = (path for path in directory.iterdir() if path.name.endswith(".page"))
    slots = (
        path
        for folder in (OWN_DIRECTORY, COPIES_DIRECTORY)
        for path in (directory / folder).glob("rank-*")
    )
    return not any(_is_page_held(page) for page in pages) and not any(map(is_slot_in_use, slots))


def _is_page_held(page: Path) -> bool:
    try:
        descriptor = os.open(page, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        return not is_unlocked(descriptor)
    finally:
        os.close(descriptor)


def is_slot_in_use(slot: Path) -> bool:
    """Whether somebody reads or writes it, or that can't be found out."""
    try:
        descriptor = open_slot_file(slot, os.O_RDONLY)
    except (FileNotFoundError, PermissionError):
        # A link to memory whose holder is gone: its number may be another user's process by now.
        return False
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
