"""Where a job's files lie on a node. Names only; making and locking them is for others."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import getpass
import glob
import logging
import os
import re
import stat
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from holdfast.contract.own_directory import SHM_PARTS, NotPrivate, is_own_file, open_private
from holdfast.contract.owned import owned_file, remove_own, stored_owner
from holdfast.contract.page import TRACES
from holdfast.contract.removing import rmdir
from holdfast_sidecar.config.settings import BadInput, PathSettings

log = logging.getLogger(__name__)


# The home directory and name of a user who may have neither: containers run as numbers.


def expand(path: str | os.PathLike[str]) -> Path:
    """The path with `~` written out; BadInput where that means nothing."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise BadInput(f"{path}: this user has no home directory; write the whole path") from None


def personal_directory(given: str | None, usual: str) -> Path:
    """One of the XDG directories, from its variable: a relative one is invalid, and ignored."""
    return expand(given if given and given.startswith("/") else usual)


def user_name() -> str:
    """What people know this user by; its number where it has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # OSError since Python 3.13
        return f"uid {os.getuid()}"


LONGEST_NAME = 63
"""What a label of DNS may have, for a node is mostly called as its host."""

NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._~-]{{0,{LONGEST_NAME - 1}}}")
"""What a job or node may be called: it becomes a directory, a Redis key and a metric label."""

MACHINE = ".machine"
"""Beside the jobs' directories; no job may be called so (`NAME`)."""

XID_HISTORY = Path(MACHINE) / "xids.json"
"""In the directory of all jobs' state; see `components.xid.storage`."""

JOB_RECORD = "job.json"
"""In the state directory of each of a job's nodes; see `job_record`."""


@dataclass(frozen=True)
class Paths:
    """The directories of one job on one node."""

    shm: Path
    state: Path

    @property
    def lock(self) -> Path:
        """Held (flock) by whoever owns this node of this job."""
        return self.shm / "owner.lock"

    @property
    def fence(self) -> Path:
        """Highest fence this node obeyed."""
        return self.state / "fence.json"

    @property
    def local_fence(self) -> Path:
        """The same, where no quota and no file server is in the way."""
        return self.shm / "fence.json"

    @property
    def sidecar_record(self) -> Path:
        """Pid and metrics address of the running sidecar."""
        return self.state / "sidecar.json"

    @property
    def targets(self) -> Path:
        """Whom Prometheus was told to scrape."""
        return self.state / "targets.json"

    @property
    def sidecar_log(self) -> Path:
        """Where the launcher sends the sidecar's log."""
        return self.state / "sidecar.log"

    @property
    def earlier_sidecar_log(self) -> Path:
        """What was in it before it grew too large."""
        return self.state / "sidecar.log.1"

    @property
    def shipping(self) -> Path:
        """Is there while the sidecar stays only to write or to tell, and says which."""
        return self.state / "shipping"

    @property
    def told_to_end(self) -> Path:
        """Is there once this node's launcher was told to end, by a person or a scheduler."""
        return self.state / "told-to-end"

    @property
    def job_record(self) -> Path:
        """What this node last knew of the job."""
        return self.state / JOB_RECORD

    @property
    def server(self) -> Path:
        """Where a server of this launch's own keeps its files."""
        return self.state / "server"

    @property
    def local_server(self) -> Path:
        """The same, where the state's disk takes nothing."""
        return self.shm / "server"

    @property
    def server_record(self) -> Path:
        """Where this job's Redis is (0600); shared by the job's nodes on this machine."""
        return self.state.parent / "server.json"

    @property
    def xid_history(self) -> Path:
        """What happened to this machine's GPUs of late: of the machine, whatever job ran."""
        return self.state.parent.parent / XID_HISTORY

    def evidence(self, attempt: int) -> Path:
        """Stack dumps of this attempt's ranks."""
        return self.attempts_evidence / f"attempt-{attempt}"

    def trace(self, attempt: int, identifier: str) -> Path:
        """What this attempt's ranks traced together."""
        return self.evidence(attempt) / TRACES / identifier

    @property
    def attempts_evidence(self) -> Path:
        """Where the stack dumps of all attempts are."""
        return self.state / "evidence"

    def incident(self, identifier: str) -> Path:
        """What was kept of an incident."""
        return self.incidents / identifier

    @property
    def incidents(self) -> Path:
        """Where what was kept of all incidents is."""
        return self.state / "incidents"


def state_root(settings: PathSettings) -> Path:
    """Directory of all jobs' state."""
    if settings.state_dir:
        return expand(settings.state_dir)
    usual = usual_state_root()
    return usual if may_be_made(usual) else _checked(passing_state_root())


def history_of(settings: PathSettings) -> Path:
    """Where the XIDs of the machine are remembered, whatever the job."""
    return state_root(settings) / XID_HISTORY


def usual_state_root() -> Path:
    """Where state is kept unless somebody says otherwise. Without a home directory (a user that the
    container knows no name for) it is below the root directory."""
    base = Path("/")
    with contextlib.suppress(BadInput):
        base = personal_directory(os.environ.get("XDG_STATE_HOME"), "~/.local/state")
    return base / "holdfast"


def passing_state_root() -> Path:
    """Where it is kept where nothing may be written there, a read-only root file system above all:
    the temporary directory, which may not outlive the container."""
    return Path(tempfile.gettempdir()) / f"holdfast-{os.getuid()}"


def _checked(root: Path) -> Path:
    """The temporary directory is everybody's: whoever was there first could say where a job's
    server is, and be sent its password."""
    try:
        os.close(open_private(root, 1))
    except FileNotFoundError:
        return root
    except OSError as error:
        why = error if isinstance(error, NotPrivate) else f"{root}: {error.strerror}"
        raise BadInput(f"{why}, or choose another directory with paths.state_dir") from None
    return root


def may_be_made(path: Path) -> bool:
    """Whether a directory may be written to, or made where it is to be."""
    existing = next((place for place in (path, *path.parents) if _is_there(place)), None)
    return existing is not None and os.access(existing, os.W_OK | os.X_OK)


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # Python before 3.14 raises where a directory above may not be looked into
        return False


def shm_root(settings: PathSettings) -> Path:
    """Directory of all jobs' shared memory."""
    return Path(settings.shm_dir) / f"holdfast-{os.getuid()}"


def places(settings: PathSettings, job: str, node: str) -> Paths:
    """Places of this job and node."""
    return Paths(shm=shm_root(settings) / job / node, state=state_root(settings) / job / node)


# Where the project's files that are not code lie: examples, dashboards, alerts.


def asset(name: str) -> Path:
    """A file or folder named as in the repository, such as `examples/chargpt.py`.

    A checkout has them at its top, a wheel carries them as the package `holdfast_assets`.
    FileNotFoundError when this installation has neither.
    """
    for root in _roots():
        if (root / name).exists():
            return root / name
    raise FileNotFoundError(f"{name} is neither in the wheel nor in a checkout of Holdfast")


def _roots() -> list[Path]:
    # An editable install has copies too, as old as the day it was made: the checkout comes first.
    above = Path(__file__).parents[3]
    checkout = [above] if (above / "pyproject.toml").exists() else []
    packed = find_spec("holdfast_assets")
    places = [] if packed is None else packed.submodule_search_locations
    return [*checkout, *(Path(place) for place in places or [])]


# Looking through directories of which others remove some meanwhile.


def find(root: Path, pattern: str) -> list[Path]:
    """What is there by this pattern below `root`, in order; nothing of what just went.

    `Path.glob` raises where a directory goes between being found and being opened (until Python
    3.13): jobs end and old evidence is removed while somebody looks at all of it.
    """
    names = glob.glob(pattern, root_dir=root)  # noqa: PTH207 - see above
    return [root / name for name in sorted(names)]


# A job's directories on this node, opened so that they can be nobody else's.
#
# How that is made sure of is in `holdfast.contract.own_directory`; here it is one line for people.

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
TAKES_NOTHING = FULL | {errno.EROFS}
"""What a disk answers that is full, over its quota or read-only: for minutes at least, and whatever
is written there."""

_STATE_PARTS = 2
"""Ours below the directory of all jobs' state: the job, the node."""

_MOST_BYTES = 1 << 20


def open_shm(directory: Path, *, make: bool = False) -> int:
    """A descriptor of a node's directory in shared memory. BadInput where it is not ours alone;
    FileNotFoundError where it, or the directory that it lies in, is not there.

    Ranks put nothing where others may look in (torch's server listens there), so with `make` that
    is said before they start.
    """
    folder = _open_shm(directory, SHM_PARTS, make)
    if make and os.fstat(folder).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        os.close(folder)
        raise BadInput(f"others may look into {directory}: chmod 700 it, or set paths.shm_dir")
    return folder


def hold_shm(directory: Path) -> int:
    """Make a node's directory in shared memory that no launcher owns, and keep it from being swept
    as long as this descriptor is open. Raises as `open_shm`."""
    while True:
        folder = open_shm(directory, make=True)
        fcntl.flock(folder, fcntl.LOCK_SH)
        try:
            if os.path.samestat(os.fstat(folder), directory.lstat()):
                return folder
        except FileNotFoundError:
            pass  # it was swept before we had it
        os.close(folder)


def open_shm_of_job(directory: Path, *, make: bool = False) -> int:
    """The same of the directory above it, which is the job's."""
    return _open_shm(directory, SHM_PARTS - 1, make)


def _open_shm(directory: Path, parts: int, make: bool) -> int:
    try:
        return open_private(directory, parts, make=make)
    except NotPrivate as error:
        raise BadInput(f"{error}, or set paths.shm_dir") from None
    except FileNotFoundError:
        raise
    except OSError as error:
        raise BadInput(f"can't use {directory}: {error.strerror}") from None


def remove_node(directory: Path) -> bool:
    """Remove a node's directory in shared memory, and its job's and the user's where nothing else
    is in them. False, and all of it stays, where something in it is not ours."""
    try:
        job = open_private(directory.parent, SHM_PARTS - 1)
    except FileNotFoundError:
        return True
    except OSError as error:
        log.warning("%s stays: %s", directory, error)
        return False
    try:
        remove_own(job, directory.name)
    except OSError as error:
        log.warning("%s stays: %s", directory, error)
        return False
    finally:
        os.close(job)
    for parent in (directory.parent, directory.parent.parent):
        with contextlib.suppress(OSError):  # other nodes or jobs are there
            rmdir(owned_file(parent))
    return True


def make_state(places: Paths) -> None:
    """Make a node's state directory, and its job's, for this user alone; what is there keeps its
    mode. BadInput where one of them is somebody else's, or others may write into it. What a full
    disk or a quota has no room for is not kept: nobody's ranks are ended for it."""
    root = places.state.parent.parent
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(_open_state(places.state, _STATE_PARTS, make=True))
    except NotPrivate as error:
        raise BadInput(f"{error}, or set paths.state_dir") from None
    except OSError as error:
        log.warning("can't make %s, nothing is kept there: %s", places.state, error.strerror)


def read_own_file(path: Path) -> bytes | None:
    """What is in a small file of a job's state directory; None where it, or that directory, is
    another user's or may be written by others. Raises OSError where it can't be read."""
    try:
        folder = _open_state(path.parent, 1)
    except NotPrivate:
        return None
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(path.name, flags, dir_fd=folder), "rb") as stream:
            facts = os.fstat(stream.fileno())
            if not is_own_file(facts, os.fstat(folder).st_uid):
                return None
            return stream.read(_MOST_BYTES)
    finally:
        os.close(folder)


def _open_state(path: Path, own_parts: int, *, make: bool = False) -> int:
    """State may lie on a file system that stores our files as another user's (NFS that squashes
    root)."""
    try:
        return open_private(path, own_parts, make=make)
    except NotPrivate:
        owner = stored_owner(path.parents[own_parts - 1])
        if owner == os.geteuid():
            raise
        return open_private(path, own_parts, make=make, owner=owner)
