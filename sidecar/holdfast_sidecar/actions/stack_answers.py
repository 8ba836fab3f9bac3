"""Asks ranks for their stacks by signal, and awaits the answers of those that can."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from holdfast import page
from holdfast.ending_processes import signal_handle
from holdfast.permit import Handle, Licence, NotPermitted, Permit
from holdfast_sidecar.linux.files import read_if_any
from holdfast_sidecar.pages import RankPage

POLL_S = 0.005
"""faulthandler writes a dump within 1 ms; what stood still for five is complete."""

LEAST_POLLS = 2

STACK_BYTES = 256 * 1024


@dataclass(frozen=True)
class Asked:
    """A rank that was asked: where its handler writes, and from which byte on."""

    held: RankPage
    file: Path
    before: int

    def answer(self) -> str:
        """What it has written since."""
        with self.file.open("rb") as file:
            file.seek(self.before)
            return file.read(STACK_BYTES).decode(errors="replace")


def ask_for_stacks(pages: Iterable[RankPage], stacks: Path, proc: Path) -> list[Asked]:
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
        asked.append(Asked(held, file, before))
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


def await_stacks(asked: Iterable[Asked], until_s: float) -> list[Asked]:
    """Those whose files grew and then stood still for one poll. Looked at twice at least: the time
    may be over for other reasons than that they are slow."""
    sizes = {one: one.before for one in asked}
    answered: list[Asked] = []
    polls = 0
    while len(answered) < len(sizes) and (polls < LEAST_POLLS or time.monotonic() < until_s):
        polls += 1
        time.sleep(POLL_S)
        for one in [one for one in sizes if one not in answered]:
            size = one.file.stat().st_size
            if size > one.before and size == sizes[one]:
                answered.append(one)
            sizes[one] = size
    return answered
