"""Stacks read from outside by py-spy, where it is installed and may look: of ranks that can't
answer a signal, and of culprits with the native frames below Python's."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.ending_processes import signal_child
from holdfast.owned import owned_file
from holdfast.permit import own_child
from holdfast.removing import unlink

logger = logging.getLogger(__name__)

SPY_S = 1.0
"""py-spy takes some 50 ms, on a busy machine several times that. (For native frames it reads the
symbols of torch first, which takes half a second at best and five the first time.)"""

DUMP_BYTES = 256 * 1024

POLL_S = 0.01


@dataclass(frozen=True)
class Suspect:
    """A process to look at."""

    rank: int
    pid: int
    is_stopped: bool
    """It is read as it lies: py-spy can't hold it a second time."""
    has_answered: bool
    """Its Python stack is known; what is below that is wanted."""


@dataclass(frozen=True)
class _Look:
    suspect: Suspect
    process: subprocess.Popen[bytes]
    output: Path


def find_spy() -> str:
    """The py-spy program, on the path or beside this interpreter; empty: there is none."""
    beside = Path(sys.executable).with_name("py-spy")
    return shutil.which("py-spy") or (str(beside) if os.access(beside, os.X_OK) else "")


def spy(
    spy_path: str, suspects: Iterable[Suspect], scratch: Path, limit_s: float = SPY_S
) -> dict[int, str]:
    """rank -> what py-spy saw of it; who could not be looked at in time is left out.

    Their outputs go through files in `scratch`: a pipe that nobody reads would hold py-spy, and
    with it the rank, for ever.
    """
    until_s = time.monotonic() + limit_s
    begun = (_begin(_command(spy_path, one), one, scratch) for one in suspects)
    looks = [look for look in begun if look is not None]
    while any(look.process.poll() is None for look in looks) and time.monotonic() < until_s:
        time.sleep(POLL_S)
    seen = {look.suspect.rank: _end(look) for look in looks}
    return {rank: text for rank, text in seen.items() if text}


def _command(spy_path: str, suspect: Suspect) -> list[str]:
    how = ["--nonblocking"] if suspect.is_stopped else ["--native"] * suspect.has_answered
    return [spy_path, "dump", "--full-filenames", *how, "--pid", str(suspect.pid)]


def _begin(command: Sequence[str], suspect: Suspect, scratch: Path) -> _Look | None:
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
        look.process.wait(timeout=POLL_S)
    with look.output.open("rb") as file:
        text = file.read(DUMP_BYTES).decode(errors="replace")
    unlink(owned_file(look.output))
    # Its first line is the command line, which may hold secrets and is kept elsewhere without.
    return "" if look.process.returncode != 0 else text.partition("\n")[2]
