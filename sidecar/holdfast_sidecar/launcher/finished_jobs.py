"""What finished jobs left in the state directory: the newest stay, older ones go.

Only what is a job's of ours by everything in it: this user's, of names that Holdfast gives, with
the mark of a sidecar. What runs, may run on another machine, or holds anything else stays.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
from dataclasses import dataclass

from holdfast.contract.own_directory import find_own, open_own_part
from holdfast.contract.owned import remove_own
from holdfast_sidecar.config.paths import JOB_RECORD, NAME, shm_root, state_root
from holdfast_sidecar.config.settings import BadInput, PathSettings
from holdfast_sidecar.export.job_record import JobRecord
from holdfast_sidecar.linux.threads import start_thread
from holdfast_sidecar.ranks.page import is_unlocked
from holdfast_sidecar.records.codec import decode

logger = logging.getLogger(__name__)

KEPT = 50
"""Of each user and state directory."""

QUIET_S = 3600.0
"""Nothing in it was written for so long, of a job that said that it is over."""

SILENT_S = 86400.0
"""Of any other. It may run on a machine that shares the directory, on a file system without locks:
whoever trains or waits there writes more often."""

MOST_AT_ONCE = 100
"""Removed after one launch; the rest after the next ones."""

WAITED_S = 5.0
"""For a slow file system, by a launch that is over. What is half removed goes another time."""

LOCK = "sidecar.lock"

MARKS = frozenset({LOCK, JOB_RECORD})
"""One of them is in the directory of each node that had a sidecar."""

OF_A_NODE = MARKS | {
    "evidence",
    "fence.json",
    "fence.new",
    "incidents",
    "job.new",
    "server",
    "shipping",
    "sidecar.json",
    "sidecar.log",
    "sidecar.log.1",
    "sidecar.log.1.new",
    "sidecar.new",
    "targets.json",
    "targets.new",
    "told-to-end",
}

OF_A_JOB = re.compile(r"server\.json(\.[0-9a-f]{8})?")
"""Beside its nodes."""

BELOW_A_NODE = re.compile(
    r"(?:(?:rank|child)-\d+(?:-[a-z]+)*\.(?:page|txt|log|json|json\.gz|facts\.json)"
    r"|(?:stack|fatal)-local-\d+\.txt|warm-interpreter-\d+\.stderr|output-\d+\.log"
    r"|(?:aftermath|bundle|decision|first-error|incident|kept|machine|settings|software)\.json"
    r"|(?:kernel|sidecar|server)\.log|[0-9a-z]+\.tar\.gz|redis\.sock|password)(?:\.new)?"
)
"""Files that Holdfast keeps as evidence, of incidents, and of its server."""

DISCARDED = ".finished"
"""Ends the name that a directory has while it is removed; no job may be called so (`NAME`)."""

_MOST_BYTES = 1 << 20


class _Stays(Exception):
    """It runs, or something in it is not ours."""


@dataclass(frozen=True)
class Finished:
    """A job's directory that may go."""

    name: str
    newest_unix_s: float


def trim_in_time(settings: PathSettings) -> None:
    """Trim, but wait for it only so long."""
    thread = start_thread(trim, "finished-jobs", (settings,))
    if thread is not None:
        thread.join(WAITED_S)


def trim(settings: PathSettings, kept: int = KEPT, now_unix_s: float | None = None) -> None:
    """Remove all but the newest finished jobs' directories."""
    now = time.time() if now_unix_s is None else now_unix_s
    try:
        shm = os.fspath(shm_root(settings))
        root = os.open(state_root(settings), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, BadInput):
        return
    try:
        names = os.listdir(root)  # noqa: PTH208 - a descriptor
        found = [one for name in names if (one := _look(root, name, shm, now)) is not None]
        newest_first = sorted(found, key=lambda one: one.newest_unix_s, reverse=True)
        for one in newest_first[kept:][-MOST_AT_ONCE:]:
            _discard(root, one.name, shm)
        for name in names:
            _finish(root, name)
    except OSError as error:
        logger.debug("can't trim what finished jobs left: %s", error)
    finally:
        os.close(root)


def _look(root: int, name: str, shm: str, now_unix_s: float) -> Finished | None:
    """The job of this name, if it is over; None: it stays."""
    if not NAME.fullmatch(name) or _is_in_use(shm, name):
        return None
    try:
        newest_unix_s, is_over = _judge(root, name)
    except (OSError, _Stays):  # NotPrivate is an OSError
        return None
    is_quiet = now_unix_s - newest_unix_s > (QUIET_S if is_over else SILENT_S)
    return Finished(name, newest_unix_s) if is_quiet else None


def _is_in_use(shm: str, job: str) -> bool:
    """Whether something of it is in shared memory: then it runs here, or ran an hour ago."""
    return os.path.lexists(os.path.join(shm, job))  # noqa: PTH118


def _judge(root: int, job: str, *, is_whole: bool = True) -> tuple[float, bool]:
    """When something in it changed last, and whether every node knew that it is over. Raises
    _Stays, OSError. is_whole: nothing of it was removed yet."""
    folder = open_own_part(root, job)
    try:
        newest_unix_s, records = os.fstat(folder).st_mtime, []
        for name in os.listdir(folder):  # noqa: PTH208 - a descriptor
            if OF_A_JOB.fullmatch(name):
                continue
            if not NAME.fullmatch(name):
                raise _Stays
            changed_unix_s, record = _judge_node(folder, name, is_whole)
            newest_unix_s = max(newest_unix_s, changed_unix_s)
            records.append(record)
    finally:
        os.close(folder)
    if is_whole and not records:
        raise _Stays
    return newest_unix_s, all(one is not None and one.was_heard_to_end for one in records)


def _judge_node(job: int, name: str, is_whole: bool) -> tuple[float, JobRecord | None]:
    folder = open_own_part(job, name)
    try:
        names = set(os.listdir(folder))  # noqa: PTH208 - a descriptor
        if names - OF_A_NODE or (is_whole and not names & MARKS):
            raise _Stays
        if _is_locked(folder):
            raise _Stays
        with os.scandir(folder) as entries:
            times = [entry.stat(follow_symlinks=False).st_mtime for entry in entries]
        return max([os.fstat(folder).st_mtime, *times]), _read_record(folder)
    finally:
        os.close(folder)


def _is_locked(node: int) -> bool:
    """Whether a sidecar watches it, on whatever machine, as far as the file system has locks."""
    try:
        lock = os.open(LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=node)
    except FileNotFoundError:
        return False
    try:
        return not is_unlocked(lock)
    except OSError:  # none here
        return False
    finally:
        os.close(lock)


def _read_record(node: int) -> JobRecord | None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(JOB_RECORD, flags, dir_fd=node), "rb") as stream:
            return decode(JobRecord, stream.read(_MOST_BYTES).decode())
    except (OSError, UnicodeDecodeError):
        return None


def _discard(root: int, job: str, shm: str) -> None:
    """Remove it. First it loses its name: a launch of this job that starts just now either is seen
    by then, or makes a new directory."""
    discarded = f".{job}{DISCARDED}"
    try:
        _look_at_all_of_it(root, job)
        os.rename(job, discarded, src_dir_fd=root, dst_dir_fd=root)
        if _is_in_use(shm, job):
            with contextlib.suppress(OSError):  # it has made a new one already
                os.rename(discarded, job, src_dir_fd=root, dst_dir_fd=root)
                return
        remove_own(root, discarded)
    except OSError as error:
        logger.debug("what job %s left stays: %s", job, error)


def _look_at_all_of_it(root: int, job: str) -> None:
    """Raises NotPrivate where something in it is another user's, or has no name that we give: who
    reads evidence may keep notes beside it."""
    folder = open_own_part(root, job)
    try:
        list(find_own(folder, os.geteuid(), _turn))
    finally:
        os.close(folder)


def _turn(path: str) -> int | None:
    """0 for a file of ours, by its path below the job's directory; None for any other."""
    *above, name = path.split("/")
    if not above:
        is_ours = OF_A_JOB.fullmatch(name) is not None
    elif len(above) == 1:
        is_ours = name in OF_A_NODE
    else:
        is_ours = BELOW_A_NODE.fullmatch(name) is not None
    return 0 if is_ours else None


def _finish(root: int, name: str) -> None:
    """Remove what an earlier launch had no time for."""
    job = name[1:].removesuffix(DISCARDED)
    if name == f".{job}{DISCARDED}" and NAME.fullmatch(job):
        with contextlib.suppress(OSError, _Stays):
            _judge(root, name, is_whole=False)
            remove_own(root, name)
