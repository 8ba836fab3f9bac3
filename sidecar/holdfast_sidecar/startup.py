"""Before a sidecar begins: whether a living one watches this node already, wherever it runs."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.contract.identity import read_identity
from holdfast.contract.own_directory import NotPrivate, open_private
from holdfast.contract.owned import owned_file
from holdfast.contract.page import PAGE_SIZE
from holdfast.contract.removing import rmdir, unlink
from holdfast.contract.storage import Unusable, is_url, open_folder
from holdfast_sidecar.checkpoint.snapshot.files import NAMED
from holdfast_sidecar.checkpoint.snapshot.memory import SlotMemory
from holdfast_sidecar.checkpoint.snapshot.slots import is_small, least_reserve
from holdfast_sidecar.config.paths import (
    FULL,
    TAKES_NOTHING,
    Paths,
    make_state,
    open_shm_of_job,
    passing_state_root,
    shm_root,
    state_root,
    usual_state_root,
)
from holdfast_sidecar.config.settings import BadInput, Settings
from holdfast_sidecar.linux.files import read_boot
from holdfast_sidecar.policy.cluster import COUNTED_BEATS, Heartbeats
from holdfast_sidecar.policy.election import (
    HANDOVER_S,
    DuplicateSidecar,
    DuplicateSidecarWatch,
    refusal,
    who_watches,
)
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.reports import NodeReport
from holdfast_sidecar.store.protocol import Section, Store, StoreUnavailable

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Site:
    """Which node of which job is watched, and under which settings."""

    job: str
    node: str
    places: Paths
    settings: Settings
    launcher_pid: int = 0
    attached: bool = False
    """Somebody else launched the ranks; see `holdfast attach`."""
    memory: SlotMemory = NAMED
    """What snapshots are kept in."""


def await_place(
    store: Store,
    site: Site,
    predecessor: str,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> str:
    """The incarnation whose place may be taken, once nobody watches this node: at once where the
    last one is known to be gone, or the store is away (the coordinator looks again). BadInput when
    somebody watches it, and stays."""
    beat_s, timeout_s = site.settings.sidecar.heartbeat_s, site.settings.sidecar.node_timeout_s
    heartbeats = Heartbeats(counted_s=COUNTED_BEATS * beat_s, late_after_s=timeout_s)
    watch, boot, is_told = DuplicateSidecarWatch(heartbeats, timeout_s), read_boot(), False
    while True:
        asked_at = clock()
        try:
            view = store.read((Section.NODES,))
        except StoreUnavailable:
            return predecessor
        other = decode(NodeReport, view.section(Section.NODES).get(site.node, ""))
        if other is None or other.incarnation == predecessor:
            return predecessor
        judged = watch.judge(other, view.server, asked_at, clock())
        if judged is DuplicateSidecar.GONE:
            return other.incarnation
        if judged is DuplicateSidecar.STAYS:
            raise BadInput(refusal(other, site.job, boot))
        if watch.has_moved and not is_told:
            who = who_watches(other, site.job, boot)
            log.warning("%s: waiting up to %g s, in case it is leaving", who, HANDOVER_S)
            is_told = True
        sleep(beat_s / 2)


# The record of the running sidecar, and the lock that lets only one watch a node of a job.

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


def lock_node(places: Paths, patience_s: float = HANDOVER_S) -> NodeLock:
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


def _take(places: Paths, descriptor: int) -> NodeLock:
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


# What must hold on a node before anything is started: its directories can be used and have room.
#
# Each failure is one line (BadInput) that says how to mend it. Judging is apart from reading.

_OWN_FILES = 4
"""Inodes beside the pages: three directories and the owner's lock."""


@dataclass(frozen=True)
class DiskSpace:
    """What a file system has left for us. `inodes` is None where it does not count them."""

    total_bytes: int
    free_bytes: int
    inodes: int | None


def check_node(settings: Settings, ranks: int) -> None:
    """Refuse a node on which `ranks` ranks could not run; leaves nothing but empty directories."""
    for problem in (
        shm_problem(settings, ranks, read_room),
        state_problem(settings),
        checkpoint_problem(settings),
        key_problem(settings.checkpoint.key_file),
    ):
        if problem:
            raise BadInput(problem)


def shm_problem(
    settings: Settings, ranks: int, read_room: Callable[[Path], DiskSpace | None]
) -> str | None:
    """Why the ranks' pages can't live in the shared-memory directory; None when they can."""
    path = Path(settings.paths.shm_dir)
    room = read_room(path)
    if room is None:
        return (
            f"{path} is no directory: mount a tmpfs there, or choose another shared-memory "
            f"directory with paths.shm_dir"
        )
    reserve_bytes = least_reserve(room.total_bytes, settings.paths.shm_reserve_bytes)
    problem = room_problem(path, room, ranks, reserve_bytes) or _foreign_problem(settings)
    return problem or _probe_problem("shared-memory directory", path, "paths.shm_dir")


def _foreign_problem(settings: Settings) -> str | None:
    """Why our own directory in shared memory can't be ours."""
    try:
        os.close(open_private(shm_root(settings.paths), 1))
    except FileNotFoundError:
        return None
    except NotPrivate as error:
        return f"{error}, or set paths.shm_dir"
    return None


def room_problem(path: Path, room: DiskSpace, ranks: int, reserve_bytes: int) -> str | None:
    """Why this much room is too little for the pages of so many ranks; None when it is enough."""
    pages_bytes = PAGE_SIZE * ranks
    if room.free_bytes < pages_bytes + reserve_bytes:
        return (
            f"{path} has {binary_size(room.free_bytes)} free of {binary_size(room.total_bytes)}, "
            f"but {ranks} rank{'s' * (ranks != 1)} need {binary_size(pages_bytes)} for pages and "
            f"{binary_size(reserve_bytes)} to spare: enlarge it (docker --shm-size=1g), or set "
            f"paths.shm_reserve_bytes lower or paths.shm_dir elsewhere"
        )
    if room.inodes is not None and room.inodes < ranks + _OWN_FILES:
        return f"{path} has only {room.inodes} free inodes: remove files, or set paths.shm_dir"
    return None


def state_problem(settings: Settings) -> str | None:
    """Why state can't lie where it is to; None when it can, or would but for a full disk."""
    path, obstacle = state_root(settings.paths), _state_obstacle(settings)
    if obstacle is None or obstacle.is_lack:
        return None
    return _cant_write("state directory", path, obstacle.why, "paths.state_dir")


def _state_obstacle(settings: Settings) -> _Obstacle | None:
    path = state_root(settings.paths)
    if path == passing_state_root():
        try:
            os.close(open_private(path, 1, make=True))
        except OSError as error:
            return _Obstacle.of(error)
    return _find_obstacle(path)


def losses(settings: Settings) -> dict[str, str]:
    """What this node lacks and does without, by which directory, each in one line with what would
    mend it."""
    found = {}
    path = Path(settings.paths.shm_dir)
    room = read_room(path)
    if room is not None and is_small(room.total_bytes, settings.paths.shm_reserve_bytes):
        found["shared memory"] = (
            f"{path} has {binary_size(room.total_bytes)} in all: snapshots leave half of it free, "
            f"so most jobs get none in memory, and DataLoader workers may run out of it "
            f"(docker --shm-size=1g, or a memory-backed volume at {path})"
        )
    if not settings.paths.state_dir and state_root(settings.paths) == passing_state_root():
        found["state"] = (
            f"{usual_state_root()} can't be written: state and evidence go to "
            f"{passing_state_root()}, and are lost with it (paths.state_dir)"
        )
    if (obstacle := _state_obstacle(settings)) is not None and obstacle.is_lack:
        found["state"] = (
            f"{state_root(settings.paths)} takes nothing ({obstacle.why}): logs, incidents and "
            f"evidence are not kept, and the job runs without (paths.state_dir)"
        )
    where = settings.checkpoint.dir
    obstacle = _find_obstacle(Path(where)) if where and not is_url(where) else None
    if obstacle is not None and obstacle.is_full:
        found["checkpoints"] = (
            f"{where} takes nothing ({obstacle.why}): nothing is saved there until there is room "
            f"(checkpoint.dir)"
        )
    return found


def checkpoint_problem(settings: Settings) -> str | None:
    """Why checkpoints can't be written; None when they can, or none were asked for, or there is
    just no room for them now: a job that comes back at night shall not end for that."""
    if not settings.checkpoint.dir:
        return None
    if is_url(settings.checkpoint.dir):
        return _url_problem(settings.checkpoint.dir)
    path = Path(settings.checkpoint.dir)
    if not path.parent.exists():
        # Made on the local disk under an unmounted path, it would hide what was saved before.
        return (
            f"{path.parent} does not exist, so checkpoint.dir {path} can't be made in it:"
            " mount the storage, or make that directory"
        )
    obstacle = _find_obstacle(path)
    if obstacle is None or obstacle.is_full:
        return None
    return _cant_write("checkpoint path", path, obstacle.why, "checkpoint.dir")


def key_problem(key_file: str) -> str | None:
    """Why manifests can't be sealed with the key; None when they can, or shall not be."""
    if not key_file:
        return None
    try:
        key = Path(key_file).expanduser().read_bytes().strip()
    except OSError as error:
        return f"can't read checkpoint.key_file {key_file}: {error.strerror}"
    return None if key else f"checkpoint.key_file {key_file} is empty: put a long secret into it"


def read_room(path: Path) -> DiskSpace | None:
    """Room left at a directory; None when there is no such directory."""
    if not path.is_dir():
        return None
    facts = os.statvfs(path)
    return DiskSpace(
        total_bytes=facts.f_blocks * facts.f_frsize,
        free_bytes=facts.f_bavail * facts.f_frsize,
        inodes=facts.f_favail if facts.f_files else None,
    )


def _url_problem(url: str) -> str | None:
    """Nothing is asked of the storage: one that is away shall not keep a job from starting."""
    try:
        open_folder(url)
    except Unusable as error:
        return f"checkpoint.dir: {error}"
    return None


def _probe_problem(what: str, path: Path, setting: str) -> str | None:
    obstacle = _probe(path)
    return None if obstacle is None else _cant_write(what, path, obstacle.why, setting)


@dataclass(frozen=True)
class _Obstacle:
    """Why a directory takes nothing. `is_lack`: only since its disk is full or read-only."""

    why: str
    is_lack: bool = False
    is_full: bool = False

    @classmethod
    def of(cls, error: OSError) -> _Obstacle:
        why = str(error) if isinstance(error, NotPrivate) else error.strerror or str(error)
        return cls(why, error.errno in TAKES_NOTHING, error.errno in FULL)


def _find_obstacle(path: Path) -> _Obstacle | None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError:
        # What /proc and the like answer. Said of a directory yet to be made, it would be nonsense.
        there = next(parent for parent in path.parents if parent.exists())
        return _Obstacle(f"{there} takes no new directory")
    except OSError as error:
        return _Obstacle.of(error)
    return _probe(path)


def _probe(path: Path) -> _Obstacle | None:
    """Write and remove a small file: permission bits alone say nothing about read-only mounts."""
    probe = path / f".holdfast-probe-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        with probe.open("xb") as file:
            file.write(bytes(4096))
    except OSError as error:
        return _Obstacle.of(error)
    finally:
        with contextlib.suppress(OSError):  # where nothing can be written there is none
            unlink(owned_file(probe), missing_ok=True)
    return None


def _cant_write(what: str, path: Path, why: str, setting: str) -> str:
    return f"can't write to the {what} {path}: {why}; choose another with {setting}"


def binary_size(size: int) -> str:
    """Bytes as MiB or GiB, three digits."""
    return f"{size / 2**20:.3g} MiB" if size < 1000 * 2**20 else f"{size / 2**30:.3g} GiB"
