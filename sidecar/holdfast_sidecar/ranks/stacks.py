"""Asks ranks for their stacks by signal, and awaits the answers of those that can."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.contract import page
from holdfast.contract.ending_processes import signal_child, signal_handle
from holdfast.contract.identity import parse_stat
from holdfast.contract.owned import owned_file
from holdfast.contract.permit import Handle, Licence, NotPermitted, Permit, own_child
from holdfast.contract.removing import unlink
from holdfast_sidecar.linux.files import read_if_any
from holdfast_sidecar.ranks.page import RankPage

logger = logging.getLogger(__name__)

ANSWER_POLL_S = 0.005
"""faulthandler writes a dump within 1 ms; what stood still for five is complete."""

LEAST_POLLS = 2

STACK_BYTES = 256 * 1024


@dataclass(frozen=True)
class PendingDump:
    """A rank that was asked: where its handler writes, and from which byte on."""

    held: RankPage
    file: Path
    before: int

    def answer(self) -> str:
        """What it has written since."""
        with self.file.open("rb") as file:
            file.seek(self.before)
            return file.read(STACK_BYTES).decode(errors="replace")


def ask_for_stacks(pages: Iterable[RankPage], stacks: Path, proc: Path) -> list[PendingDump]:
    """Send STACKS_SIGNAL to every rank that has our handler."""
    asked = []
    for held in pages:
        file = stacks / f"stack-local-{held.identity.local_rank}.txt"
        try:
            permit = answerable(held, file, proc)
            before = file.stat().st_size
            signal_handle(permit)
        except (NotPermitted, ProcessLookupError):
            continue
        asked.append(PendingDump(held, file, before))
    return asked


def answerable(held: RankPage, file: Path, proc: Path) -> Permit:
    """To send a rank the signal at which our handler writes its stacks. Raises NotPermitted.

    Without the dump file our handler was never registered (the user may have one of his own for
    this signal); without any handler the signal would kill the rank. A script that closed the file
    may have one of its own under that number, which the handler would write into.
    """
    process = proc / str(held.identity.pid)
    if not can_answer(read_if_any(f"{process}/status")) or not has_open(process, file):
        raise NotPermitted(f"rank {held.identity.rank} has no handler of ours that can answer")
    if held.pidfd is None:
        raise NotPermitted(f"the process of rank {held.identity.rank} can't be reached")
    return Permit(
        Licence.OWN_RANK, Handle(held.pidfd, page.STACKS_SIGNAL), "our handler writes its stacks"
    )


def can_answer(status: str) -> bool:
    """From /proc/PID/status: not stopped, not dead, and the signal is caught and not blocked."""
    fields = {
        name: value.strip() for name, _, value in (s.partition(":") for s in status.split("\n"))
    }
    bit = 1 << (page.STACKS_SIGNAL - 1)
    return (
        fields.get("State", "X")[:1] in ("R", "S", "D")
        and bool(int(fields.get("SigCgt", "0"), 16) & bit)
        and not int(fields.get("SigBlk", "0"), 16) & bit
    )


def has_open(process: Path, file: Path) -> bool:
    """Whether a process has the file open, as /proc tells: by its name, since a container may know
    its folder under another. No link is followed: a file on storage that is away would hold us."""
    if not file.exists():
        return False
    try:
        return any(_name_behind(link) == file.name for link in (process / "fd").iterdir())
    except PermissionError:
        return True  # a process that may not be looked into: nothing speaks against it
    except (FileNotFoundError, ProcessLookupError):
        return False


def _name_behind(link: Path) -> str:
    try:
        return link.readlink().name
    except FileNotFoundError:  # closed while we looked
        return ""


def await_stacks(asked: Iterable[PendingDump], until_s: float) -> list[PendingDump]:
    """Those whose files grew and then stood still for one poll. Looked at twice at least: the time
    may be over for other reasons than that they are slow."""
    sizes = {one: one.before for one in asked}
    answered: list[PendingDump] = []
    polls = 0
    while len(answered) < len(sizes) and (polls < LEAST_POLLS or time.monotonic() < until_s):
        polls += 1
        time.sleep(ANSWER_POLL_S)
        for one in [one for one in sizes if one not in answered]:
            size = one.file.stat().st_size
            if size > one.before and size == sizes[one]:
                answered.append(one)
            sizes[one] = size
    return answered


# Stacks read from outside by py-spy, where it is installed and may look: of ranks that can't
# answer a signal, and of culprits with the native frames below Python's.

SPY_S = 1.0
"""py-spy takes some 50 ms, on a busy machine several times that. (For native frames it reads the
symbols of torch first, which takes half a second at best and five the first time.)"""

DUMP_BYTES = 256 * 1024

SPY_POLL_S = 0.01


@dataclass(frozen=True)
class SuspectProcess:
    """A process to look at."""

    rank: int
    pid: int
    is_stopped: bool
    """It is read as it lies: py-spy can't hold it a second time."""
    has_answered: bool
    """Its Python stack is known; what is below that is wanted."""


@dataclass(frozen=True)
class _Look:
    suspect: SuspectProcess
    process: subprocess.Popen[bytes]
    output: Path


def find_spy() -> str:
    """The py-spy program, on the path or beside this interpreter; empty: there is none."""
    beside = Path(sys.executable).with_name("py-spy")
    return shutil.which("py-spy") or (str(beside) if os.access(beside, os.X_OK) else "")


def spy(
    spy_path: str, suspects: Iterable[SuspectProcess], scratch: Path, limit_s: float = SPY_S
) -> dict[int, str]:
    """rank -> what py-spy saw of it; who could not be looked at in time is left out.

    Their outputs go through files in `scratch`: a pipe that nobody reads would hold py-spy, and
    with it the rank, for ever.
    """
    until_s = time.monotonic() + limit_s
    begun = (_begin(_command(spy_path, one), one, scratch) for one in suspects)
    looks = [look for look in begun if look is not None]
    while any(look.process.poll() is None for look in looks) and time.monotonic() < until_s:
        time.sleep(SPY_POLL_S)
    seen = {look.suspect.rank: _end(look) for look in looks}
    return {rank: text for rank, text in seen.items() if text}


def _command(spy_path: str, suspect: SuspectProcess) -> list[str]:
    how = ["--nonblocking"] if suspect.is_stopped else ["--native"] * suspect.has_answered
    return [spy_path, "dump", "--full-filenames", *how, "--pid", str(suspect.pid)]


def _begin(command: Sequence[str], suspect: SuspectProcess, scratch: Path) -> _Look | None:
    """None where it can't be started (another machine's program, no process left): what it would
    have seen is missing then, and no other evidence is."""
    output = scratch / f"spied-{suspect.rank}.new"
    with output.open("wb") as file:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.DEVNULL
            )
        except OSError as error:
            logger.warning("%s can't be started: %s", command[0], error)
            unlink(owned_file(output))
            return None
    return _Look(suspect, process, output)


def _end(look: _Look) -> str:
    if look.process.poll() is None:
        # Not waited for: what hangs in the kernel with its victim can't even be killed.
        signal_child(own_child(look.process))
    with contextlib.suppress(subprocess.TimeoutExpired):
        look.process.wait(timeout=SPY_POLL_S)
    with look.output.open("rb") as file:
        text = file.read(DUMP_BYTES).decode(errors="replace")
    unlink(owned_file(look.output))
    # Its first line is the command line, which may hold secrets and is kept elsewhere without.
    return "" if look.process.returncode != 0 else text.partition("\n")[2]


# What the kernel says of a process that can't speak for itself: where its threads and children
# wait, and which files it has open. Nothing here reads the process's own memory.

THREADS_KEPT = 64
CHILDREN_KEPT = 64
FILES_KEPT = 256

_OF_PROCESS = ("status", "wchan", "syscall", "stack", "io", "limits", "cgroup")
_OF_THREAD = ("comm", "wchan", "syscall", "stack")
_OF_CHILD = ("comm", "wchan", "stat", "syscall")
_OF_ROOT_ALONE = "stack"

READ_BYTES = 65_536


def read_kernel_views(proc: Path, pid: int) -> dict[str, Any]:
    """All of it as text; what can't be read is empty."""
    directory = f"{proc}/{pid}"
    views: dict[str, Any] = {name: _read(f"{directory}/{name}") for name in _OF_PROCESS}
    of_thread = _OF_THREAD if views[_OF_ROOT_ALONE] else _OF_THREAD[:-1]
    views["threads"] = {
        thread: {name: _read(f"{directory}/task/{thread}/{name}") for name in of_thread}
        for thread in _list(f"{directory}/task")[:THREADS_KEPT]
    }
    views["children"] = {
        child: {name: _read(f"{proc}/{child}/{name}") for name in _OF_CHILD}
        for child in _children(directory, views["threads"])[:CHILDREN_KEPT]
    }
    views["files"] = _read_files(f"{directory}/fd")
    return views


def _read(path: str) -> str:
    return read_if_any(path, READ_BYTES)


def _children(directory: str, threads: dict[str, Any]) -> list[str]:
    """A child belongs to the thread that started it."""
    found: list[str] = []
    for thread in threads:
        found += _read(f"{directory}/task/{thread}/children").split()
    return found


def _read_files(directory: str) -> dict[str, str]:
    files = {}
    for name in _list(directory)[:FILES_KEPT]:
        try:
            files[name] = os.readlink(f"{directory}/{name}")  # noqa: PTH115 - as `kernel_files`
        except OSError:
            continue
    return files


def _list(directory: str) -> list[str]:
    try:
        names = os.listdir(directory)  # noqa: PTH208 - as `kernel_files`
    except OSError:
        return []
    return sorted(names, key=lambda name: (len(name), name))


# Whose stacks are read from outside: who can't answer, and what a culprit waits for. Pure.

CHILDREN_AT_ONCE = 4
"""A culprit has as many loader workers as it likes; those that stand still mostly stand alike."""

STOPPED = ("T", "t")
STUCK = (*STOPPED, "D")

View = Mapping[str, Any]
"""What `kernel_views` reads of a process."""


def choose_suspects(
    views: Mapping[int, View],
    pids: Mapping[int, int],
    answered: Collection[int],
    culprits: Collection[int],
    wants_native: bool,
) -> list[SuspectProcess]:
    """Of the living ranks in `pids` (rank -> pid): who has not answered, the culprits' children
    that are stopped or sit in the kernel, and culprits whose native frames are wanted."""
    found = [
        SuspectProcess(rank, pid, state_of(views[rank]) in STOPPED, rank in answered)
        for rank, pid in pids.items()
        if rank not in answered or (wants_native and rank in culprits)
    ]
    for rank in pids:
        if rank in culprits:
            found += _stuck_children(views[rank])
    return found


def _stuck_children(view: View) -> Iterator[SuspectProcess]:
    """A loader worker that was stopped, or reads a file that never comes. Known by its pid, less
    than zero: it is no rank."""
    stuck = {
        int(pid): state
        for pid, child in view["children"].items()
        if (state := _state_of_child(child)) in STUCK
    }
    for pid, state in sorted(stuck.items())[:CHILDREN_AT_ONCE]:
        yield SuspectProcess(-pid, pid, state in STOPPED, has_answered=False)


def file_name(who: int) -> str:
    """Under which its stacks are kept."""
    return f"rank-{who}-stacks.txt" if who >= 0 else f"child-{-who}-stacks.txt"


def state_of(view: View) -> str:
    """The letter of a process's state; empty when it is gone."""
    return letter(str(view["status"]))


def letter(status: str) -> str:
    """The letter of the state in /proc/PID/status; empty when there is none."""
    _, found, rest = status.partition("State:\t")
    return rest[:1] if found else ""


def _state_of_child(child: Mapping[str, str]) -> str:
    return parse_stat(child["stat"]).state if ")" in child["stat"] else ""
