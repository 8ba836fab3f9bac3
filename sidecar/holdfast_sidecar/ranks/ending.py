"""Ends a hung rank of this node. Whether it may be ended is for `policy.budget`."""

from __future__ import annotations

import fcntl
import logging
import os
import signal
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.contract.ending_processes import signal_handle
from holdfast.contract.identity import ProcessIdentity, ProcessStatus, read_status
from holdfast.contract.own_directory import NotPrivate, open_node
from holdfast.contract.page import END_SIGNAL, Ending, Flag, Word, parse_words
from holdfast.contract.permit import Handle, Licence, NotPermitted, Permit
from holdfast.contract.snapshot_file import COPIES_DIRECTORY, OWN_DIRECTORY, open_slot_file
from holdfast_sidecar.config.paths import remove_node
from holdfast_sidecar.linux.process import is_tracker, wait_for_trackers
from holdfast_sidecar.ranks.observation import RankHistory
from holdfast_sidecar.ranks.page import RankPage, is_unlocked, open_process
from holdfast_sidecar.records.plan import Plan

logger = logging.getLogger(__name__)

PermitFor = Callable[[int, int, int | None], Permit]
"""Attempt, rank and open process -> a permit to end it; raises NotPermitted."""


def end_culprits(permit_for: PermitFor, pages: Iterable[RankPage]) -> bool:
    """Kill the plan's culprits among these pages; whether any was still there.

    Through the handle opened when the page was first seen.
    """
    ended = False
    for held in pages:
        who = held.identity
        try:
            permit = permit_for(who.attempt, who.rank, held.pidfd)
        except NotPermitted:
            continue
        if held.is_gone():
            continue
        try:
            signal_handle(permit)
        except ProcessLookupError:
            continue
        logger.warning("ended rank %d (process %d): %s", who.rank, who.pid, permit.proof)
        ended = True
    return ended


# Under plain torchrun: ends ranks that hold SIGTERM once torchrun would have ended them by it.
#
# Our own launcher does that itself, at once.


def release(
    plan: Plan | None, pages: Iterable[RankPage], histories: Mapping[int, RankHistory]
) -> bool:
    """End the held ranks of an attempt that is over; whether any was still there.

    histories: of the ranks, by rank, as the loop last looked at them.
    """
    held = [(page, parse_words(page.read())) for page in pages]
    attempts = {
        page.identity.attempt
        for page, words in held
        if _ended_badly(page, words, histories.get(page.identity.rank))
    }
    released = False
    for page, words in held:
        try:
            permit = released_by(plan, page, words, attempts)
            signal_handle(permit)
        except (NotPermitted, ProcessLookupError):
            continue
        logger.info("ended rank %d: %s", page.identity.rank, permit.proof)
        released = True
    return released


def released_by(
    plan: Plan | None, page: RankPage, words: tuple[int, ...], failed: Collection[int]
) -> Permit:
    """To end a rank that holds SIGTERM, as that would have ended it. Raises NotPermitted.

    failed: attempts that torchrun takes down, one of their ranks having failed.
    """
    who = page.identity
    if not words[Word.FLAGS] & Flag.HOLDS_TERMINATION or page.pidfd is None or page.is_gone():
        raise NotPermitted(f"rank {who.rank} does not hold SIGTERM, or is gone")
    was_told = bool(words[Word.TERMINATION_NS])
    if who.attempt not in failed and not is_over(plan, who.attempt, was_told):
        raise NotPermitted(f"attempt {who.attempt} is not over")
    proof = "it held SIGTERM, and its attempt is over"
    return Permit(Licence.OWN_RANK, Handle(page.pidfd, END_SIGNAL), proof)


def is_over(plan: Plan | None, attempt: int, was_told: bool) -> bool:
    """Whether ranks of this attempt have nothing more to do.

    Of a job that is stopped they may leave by themselves, at the end of their step, unless they
    were told to go before.
    """
    if plan is None or plan.attempt < attempt:
        return False
    if plan.attempt > attempt or plan.state == "ended":
        return True
    return plan.state == "stopped" and was_told


def _ended_badly(page: RankPage, words: tuple[int, ...], history: RankHistory | None) -> bool:
    """torchrun tears the node down when one of its ranks has failed, and goes by exit codes.

    Where the code can't be known the page must do: it misses `os._exit`, past all that writes it.
    """
    if not page.is_gone():
        return False
    if history is not None and history.look.identity == page.identity:
        if history.gone_since_s is None:
            return False  # it went since the last look; the next one may know its code
        if history.exit_code is not None:
            return history.exit_code != 0
    return words[Word.ENDING] != Ending.FINISHED


# Clears up after a launcher that died: what its dead ranks left running, and the shared memory.
#
# Ranks die with their launcher by themselves. What outlives them are processes they started:
# DataLoader workers and compile workers orphaned by SIGKILL. They are known by their session, which
# is the rank's own (the launcher starts every rank in a session of its own).


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


# Runs an action; the one place that catches, logs and counts an action's failure.


@dataclass
class ActionRunner:
    """Counts what was done and what failed, by the action's name."""

    done: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    _last_errors: dict[str, str] = field(default_factory=dict)

    def run(self, name: str, action: Callable[[], bool]) -> bool:
        """Run it; answers whether it did something (`action` answers False: nothing to do)."""
        try:
            did = action()
        except Exception as error:
            self._failed(name, error)
            return False
        self._last_errors.pop(name, None)
        self.done[name] += int(did)
        return did

    def _failed(self, name: str, error: Exception) -> None:
        self.failed[name] += 1
        text = f"{type(error).__name__}: {error}"
        # The loop tries again at its next tick: an error that stays is logged once.
        if self._last_errors.get(name) != text:
            logger.error("action %s failed: %s", name, text)
            self._last_errors[name] = text
