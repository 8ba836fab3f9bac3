"""Which launch this launcher belongs to, and what it was told to run: launches are not to be mixed.

A name can be the same by chance; a scheduler's id cannot.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import logging
import os
import re
import socket
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.contract import environment as names
from holdfast.contract.own_directory import NotPrivate, make_closed, open_own_part, open_private
from holdfast.contract.owned import owned_file, remove_own
from holdfast.contract.page import DEVICES_SUFFIX, GROUPS_SUFFIX, LAYOUT_SUFFIX, SOCKET_SUFFIX
from holdfast.contract.removing import rmdir, unlink
from holdfast.contract.snapshot_file import COPIES_DIRECTORY, OWN_DIRECTORY
from holdfast_sidecar.config.paths import (
    LONGEST_NAME,
    NAME,
    Paths,
    make_state,
    open_shm,
    places,
    remove_node,
    shm_root,
    user_name,
)
from holdfast_sidecar.config.settings import BadInput, PathSettings, Settings
from holdfast_sidecar.ranks.ending import all_unlocked, is_slot_in_use
from holdfast_sidecar.records.reports import OF_USER, AgentReport
from holdfast_sidecar.startup import STAND_IN

logger = logging.getLogger(__name__)

LONGEST = 40
"""Of an id inside a job's name; a Kubernetes uid has 36 characters."""

OF_A_NODE = frozenset({"node_rank", "machine_rank", "master_addr", "local_addr"})
"""Options of scripts that rightly differ between the nodes of one launch, without their dashes."""

SHOWN_NODES = 4
"""Named of each group in a warning; of a large job the first ones are enough to look at."""


def launch_of(environment: Mapping[str, str]) -> str:
    """The launch that a launcher under a given job name belongs to: its scheduler's job, so that a
    step that is started again on another node comes back; where there is none, its user's."""
    return scheduler_job(environment) or f"{OF_USER}{user_name()}"


def scheduler_job(environment: Mapping[str, str]) -> str:
    """What the scheduler, or whoever starts the launchers, calls this job; empty: nothing says."""
    if given := environment.get(names.LAUNCH_ID, "").strip():
        return given[:200]
    slurm = environment.get("SLURM_JOB_ID", "")
    return f"slurm-{slurm}" if slurm else ""


def scheduler_launch(environment: Mapping[str, str], is_one_node: bool) -> str:
    """The same, told from other launches inside one allocation: fit to name a job after.

    Of one node: told from the other tasks of its step, too, each of which is a launch of its own.
    """
    known = scheduler_job(environment)
    if known.startswith("slurm-") and not environment.get(names.LAUNCH_ID, "").strip():
        parts = ["SLURM_STEP_ID", *(["SLURM_PROCID"] if is_one_node else [])]
        known = ".".join([known, *(environment[name] for name in parts if environment.get(name))])
    return known if len(known) <= LONGEST else _digest(known)


def describe_command(
    script: str, arguments: Sequence[str], ranks: int, settings: Settings
) -> dict[str, str]:
    """What all nodes of a job mostly have in common. Arguments may hold secrets: digests only."""
    kept = {
        "policy": dataclasses.asdict(settings.policy),
        "stall": dataclasses.asdict(settings.stall),
        "checkpoint": dataclasses.asdict(settings.checkpoint) | {"key_file": ""},
        "snapshot": [settings.snapshot.every_steps, settings.snapshot.peer],
    }
    return {
        "script": _digest(script),
        "arguments of the script": _digest(json.dumps(list(arguments))),
        "ranks per node": str(ranks),
        "user": user_name(),
        "settings": _digest(json.dumps(kept, sort_keys=True)),
    }


def launch_command(script: str, arguments: Sequence[str], own: Collection[str]) -> str:
    """A digest of what a launch runs, alike on all of its nodes. own: this node's name and
    addresses, which an option may rightly name."""
    alike = [Path(script).name]
    option = ""
    for argument in arguments:
        name, has_value, value = argument.partition("=")
        if argument.startswith("-"):
            option, value = name, value if has_value else ""
        else:
            value = argument
        is_own = option.lstrip("-").replace("-", "_") in OF_A_NODE or value in own
        alike.append(option if option and value and is_own else argument)
        option = option if argument.startswith("-") and not has_value else ""
    return _digest(json.dumps(alike))


def differing_parts(own: AgentReport, others: Iterable[AgentReport]) -> str:
    """In what the command of this launcher differs from those of others, of what tells launches
    apart."""
    parts = ("script", "arguments of the script")
    unlike = [p for p in parts if any(o.command.get(p) != own.command.get(p) for o in others)]
    return ", ".join(unlike) or "its command"


def unlike_commands(agents: Sequence[AgentReport]) -> str:
    """One line on the nodes of an attempt that were started differently; empty: none were."""
    parts = sorted({part for agent in agents for part in agent.command})
    told = []
    for part in parts:
        groups: dict[str, list[str]] = {}
        for agent in sorted(agents, key=lambda agent: agent.node):
            groups.setdefault(agent.command.get(part, ""), []).append(agent.node)
        if len(groups) > 1:
            told.append(f"{part} ({' | '.join(_some(nodes) for nodes in groups.values())})")
    if not told:
        return ""
    return f"the nodes of this job were started with different commands: {'; '.join(told)}"


def _some(nodes: Sequence[str]) -> str:
    more = len(nodes) - SHOWN_NODES
    return ", ".join(nodes[:SHOWN_NODES]) + (f" and {more} more" if more > 0 else "")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


# Who owns a node of a job on this machine: a locked file, never a pid.
#
# Makes the private directories, finds a free node name, and sweeps what nobody owns any more.

EXPIRED_S = 3600.0
"""Pages of a run that was killed are kept this long: its evidence, should anyone look."""

GLANCES = 5
GLANCE_S = 0.01
"""Who sweeps, or asks whether a node is owned, holds its lock for an instant. That is no owner."""

MOST_NODES = 1000
"""Names tried for a node before something else must be wrong."""


@dataclass(frozen=True)
class NodeOwnership:
    """A node of a job, owned by this process until `release`."""

    node: str
    places: Paths
    lock_fd: int
    incarnation: str
    """A name for this start of a launcher, which lies in the lock."""
    before: str = ""
    """Of the launcher that had the lock before, if it was killed: it is dead for certain."""

    def release(self) -> None:
        """Remove what lies in shared memory and give the node up."""
        remove_node(self.places.shm)
        os.close(self.lock_fd)


def own_node(settings: PathSettings, job: str, name: str | None) -> NodeOwnership:
    """Own the node called `name`, or the first free one named after this host."""
    for node in [name] if name else host_names():
        where = places(settings, job, node)
        lock_fd = _lock(where)
        if lock_fd is not None:
            make_state(where)
            before, incarnation = _read_incarnation(lock_fd), new_incarnation()
            os.truncate(lock_fd, 0)
            os.pwrite(lock_fd, incarnation.encode(), 0)
            return NodeOwnership(node, where, lock_fd, incarnation, before)
    raise BadInput(
        f"a launcher of job {job!r} runs on node {name or socket.gethostname()!r} of this machine "
        "already: choose another --job or --node, or end that one first"
    )


def make_if_possible(folder: Path) -> None:
    """Make a directory below the state directory. What a full disk or a quota has no room for is
    not kept; nobody's ranks are ended for it."""
    try:
        make_closed(folder)
    except OSError as error:
        logger.warning("can't make %s, nothing is kept there: %s", folder, error.strerror)


def new_incarnation() -> str:
    """A name for one start of a launcher."""
    return f"{os.getpid():x}-{os.urandom(6).hex()}"


def _read_incarnation(lock_fd: int) -> str:
    text = os.pread(lock_fd, 64, 0).decode("ascii", "replace")
    return text if re.fullmatch(r"[0-9a-f]+-[0-9a-f]+", text) else ""


def host_names() -> Iterator[str]:
    """The host's name, then host~2, host~3, … for more nodes of one job on one machine."""
    host = as_name(socket.gethostname())
    yield host
    for number in range(2, MOST_NODES):
        ending = f"~{number}"
        yield f"{host[: LONGEST_NAME - len(ending)]}{ending}"


def as_name(text: str) -> str:
    """The text as the name of a job or node: whatever a name may not hold becomes a dash."""
    name = re.sub(r"[^A-Za-z0-9._~-]", "-", text).lstrip("-._~")[:LONGEST_NAME]
    return name if NAME.fullmatch(name) else "node"


def checked(option: str, name: str) -> str:
    """The name of a job or node that was given; BadInput says why it can't be one."""
    if NAME.fullmatch(name):
        return name
    if re.search(r"[^A-Za-z0-9._~-]", name) or not name:
        raise BadInput(f"{option} {name}: use letters, digits and . _ ~ - only")
    if name[0] in "._~-":
        raise BadInput(f"{option} {name}: begin it with a letter or digit")
    raise BadInput(f"{option} {name}: use at most {LONGEST_NAME} characters, this is {len(name)}")


def sweep(settings: PathSettings, now_unix_s: float | None = None) -> None:
    """Remove what earlier runs of this user left in shared memory, if unowned and expired.

    BadInput where the directory is another user's: nothing below it is even looked at.
    """
    now = time.time() if now_unix_s is None else now_unix_s
    root = shm_root(settings)
    try:
        folder = open_private(root, 1)
    except FileNotFoundError:
        return
    except NotPrivate as error:
        raise BadInput(f"{error}, or set paths.shm_dir") from None
    try:
        for job in sorted(os.listdir(folder)):  # noqa: PTH208 - a descriptor
            _sweep_job(folder, job, now)
    finally:
        os.close(folder)


def _sweep_job(root: int, job: str, now_unix_s: float) -> None:
    """By descriptors alone; what is a link, or not ours, is passed over."""
    try:
        folder = open_own_part(root, job)
    except OSError:
        return
    try:
        for node in sorted(os.listdir(folder)):  # noqa: PTH208 - a descriptor
            with contextlib.suppress(OSError):
                _sweep_node(folder, node, now_unix_s)
    finally:
        os.close(folder)
    with contextlib.suppress(OSError):  # not empty
        rmdir(owned_file(job, root))


def _sweep_node(job: int, node: str, now_unix_s: float) -> None:
    if node.endswith(STAND_IN):
        with _unowned(node, job) as is_free:
            if is_free:
                unlink(owned_file(node, job))
        return
    folder = open_own_part(job, node)
    try:
        with _unowned("owner.lock", folder) as has_no_launcher:
            # Under `holdfast attach` there is none: its sidecar holds the directory itself, its
            # ranks their pages.
            is_free = has_no_launcher and _try_lock(folder, GLANCES)
            if is_free and now_unix_s - _newest(folder) > EXPIRED_S and _is_unused(folder):
                remove_own(job, node)
    finally:
        os.close(folder)


def _is_unused(folder: int) -> bool:
    return all_unlocked(Path(f"/proc/self/fd/{folder}"))


def sweep_pages(shm: Path, now_unix_s: float | None = None) -> None:
    """Remove expired pages of earlier runs from a node's directory that we own."""
    now = time.time() if now_unix_s is None else now_unix_s
    for page in shm.glob("*.page"):
        with contextlib.suppress(FileNotFoundError):
            if not is_owned(page) and now - page.stat().st_mtime > EXPIRED_S:
                for suffix in (SOCKET_SUFFIX, GROUPS_SUFFIX, LAYOUT_SUFFIX, DEVICES_SUFFIX):
                    unlink(owned_file(page.with_suffix(suffix)), missing_ok=True)
                unlink(owned_file(page))


def sweep_slots(shm: Path) -> None:
    """Remove what an earlier launcher's ranks left in a node's directory that we own.

    Slots belong to a launcher: to a later one they would be another run's state. One that is still
    read or written is left, and goes with the directory.
    """
    for folder in (OWN_DIRECTORY, COPIES_DIRECTORY):
        for slot in (shm / folder).glob("*"):
            with contextlib.suppress(FileNotFoundError):
                if not is_slot_in_use(slot):
                    unlink(owned_file(slot))


def is_owned(path: Path) -> bool:
    """Whether a living process holds the lock of this file, or that can't be found out."""
    with _unowned(path) as is_free:
        return not is_free


@contextlib.contextmanager
def _unowned(path: str | Path, folder: int | None = None) -> Iterator[bool]:
    """Whether nobody holds this file's lock; meanwhile nobody else can take it. A file that is not
    there nobody holds; one that can't be opened (no descriptor is left) somebody may."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(path, flags, dir_fd=folder)
    except OSError as error:
        yield isinstance(error, FileNotFoundError)
        return
    try:
        yield _try_lock(handle)
    finally:
        os.close(handle)


def _try_lock(handle: int, glances: int = 1) -> bool:
    for glance in range(glances):
        if glance:
            time.sleep(GLANCE_S)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
    return False


def _lock(where: Paths) -> int | None:
    """Lock the node's directory; None when somebody holds it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        try:
            folder = open_shm(where.shm, make=True)
        except FileNotFoundError:
            if not (root := where.shm.parent.parent.parent).is_dir():
                raise BadInput(f"{root} is no directory: set paths.shm_dir to one") from None
            continue  # whoever had it, or another node or job, is just removing the directory
        try:
            handle = os.open(where.lock.name, flags, 0o600, dir_fd=folder)
        except FileNotFoundError:
            continue
        finally:
            os.close(folder)
        if not _try_lock(handle, GLANCES):
            os.close(handle)
            return None
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(handle).st_ino == where.lock.stat().st_ino:
                return handle
        os.close(handle)  # the file we locked was removed meanwhile: it protects nothing


def _newest(folder: int) -> float:
    times = [os.fstat(folder).st_mtime]
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                times.append(entry.stat(follow_symlinks=False).st_mtime)
    return max(times)
