"""What allows one end of a process, or one removal: a permit.

Only policy makes permits: here, and in the few modules that a test names (`test_harmless.py`). What
ends and removes (`ending_processes`, `removing`) takes nothing but a permit, and acts on what that
permit holds for.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Protocol

    class ChildProcess(Protocol):
        """The part of subprocess.Popen by which a child is signalled."""

        pid: int

        def poll(self) -> int | None:
            """Its exit code, reaping it; None while it runs."""

        def send_signal(self, sig: int, /) -> None:
            """Signal it, unless it has been reaped."""


class Licence(Enum):
    """On what a permit rests, in the words of docs/harmless.md."""

    OWN_CHILD = "own child"
    OWN_RANK = "own rank"
    OWN_FILE = "own file"
    MARK = "mark"


class NotPermitted(PermissionError):
    """What a permit was asked for is not so: one line."""

    def __str__(self) -> str:
        return str(self.args[-1])


class NotOurChild(NotPermitted, ProcessLookupError):
    """A process is no child of ours: it never was, or somebody has reaped it, and it is gone."""


@dataclass(frozen=True)
class Child:
    """A process that may be signalled by its number, since nobody else can have got it."""

    pid: int
    process: ChildProcess | None = None
    """Who started it reaps it through this, and is asked before each signal."""


@dataclass(frozen=True)
class Group:
    """A process group whose number nobody else can have got."""

    pid: int


@dataclass(frozen=True)
class Handle:
    """A process that is held open, for one signal."""

    pidfd: int
    number: int


@dataclass(frozen=True)
class DirectoryEntry:
    """A name in an open directory; without one, a path or the key of an object store."""

    name: str
    folder: int | None = None


@dataclass(frozen=True)
class Stored:
    """A file in a folder of checkpoints; without a name, the folder and all in it that is known."""

    url: str
    name: str = ""


@dataclass(frozen=True)
class Permit:
    """For one subject and nothing else. `proof`: a few words for people."""

    licence: Licence
    subject: Child | Group | Handle | DirectoryEntry | Stored
    proof: str

    def part(self, url: str, name: str, folder: int | None = None, at: str = "") -> Permit:
        """For one file of what is stored under this URL: `at` in an open directory, or as a key.

        Raises NotPermitted where this holds for something else.
        """
        if self.subject not in (Stored(url), Stored(url, name)):
            raise NotPermitted(f"{name} in {url}: the permit is for {self.subject}")
        return Permit(self.licence, DirectoryEntry(at or name, folder), self.proof)


def own_child(child: int | ChildProcess) -> Permit:
    """To signal a child that nobody has reaped, or one that a fork server of ours made.

    Raises NotOurChild (which is a ProcessLookupError). Of a Popen it never does: that looks for
    itself before each signal, and sends none to what has been reaped.
    """
    if not isinstance(child, int):
        child.poll()
        return Permit(Licence.OWN_CHILD, Child(child.pid, child), f"started as {child.pid}")
    if _is_own(child):
        return Permit(Licence.OWN_CHILD, Child(child), f"child {child}, not reaped")
    parent = _parent(child)
    if not _is_own(parent):
        raise NotOurChild(f"process {child} is no child of {os.getpid()}")
    return Permit(Licence.OWN_CHILD, Child(child), f"child of child {parent}")


def own_group(child: int | ChildProcess) -> Permit:
    """To signal the group that a child leads, or led: as long as a group has members the kernel
    gives its number to no process. Raises NotOurChild, ProcessLookupError."""
    pid = child if isinstance(child, int) else child.pid
    if _is_own(pid):
        if os.getpgid(pid) != pid:
            raise NotOurChild(f"child {pid} leads no group")
        return Permit(Licence.OWN_CHILD, Group(pid), f"group of child {pid}")
    if isinstance(child, int) or _exists(pid):
        raise NotOurChild(f"the group of {pid} is not, or no longer, a child's")
    return Permit(Licence.OWN_CHILD, Group(pid), f"group that child {pid} led")


def own_session(pid: int, leaders: Collection[int]) -> Permit:
    """To signal a process in a session that one of these children leads, or led. Raises
    NotOurChild, ProcessLookupError."""
    leader = os.getsid(pid)
    if leader not in leaders:
        raise NotOurChild(f"process {pid} is in session {leader}, which is none of ours")
    # The number of a session that has members goes to no new process.
    if not _is_own(leader) and _exists(leader):
        raise NotOurChild(f"session {leader} is no child's")
    return Permit(Licence.OWN_CHILD, Child(pid), f"in the session of child {leader}")


def _is_own(pid: int) -> bool:
    """The kernel says it of a child until it is reaped."""
    if pid <= 0:
        return False
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def _exists(pid: int) -> bool:
    try:
        os.getpgid(pid)
    except ProcessLookupError:
        return False
    return True


def _parent(pid: int) -> int:
    """0 where it is gone."""
    try:
        with open(f"/proc/{pid}/stat") as stream:  # noqa: PTH123
            text = stream.read()
    except OSError:
        return 0
    return int(text[text.rindex(")") + 2 :].split()[1])
