"""What a launch needs before torch is imported, which takes a second: its words, and process 1."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

from holdfast.contract.ending_processes import signal_child
from holdfast.contract.permit import own_child

# What a launch says last. It goes to stderr, which nobody may read any more: a scheduler that asks
# for the nodes back ends `tee` as well. The exit code is the same then.


def say(line: str) -> None:
    """Say it if anybody listens."""
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        _hear_no_more()


def _hear_no_more() -> None:
    """What is left in the stream must not fail again when the interpreter ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)


# Process 1 of a container: passes signals on to the launcher, and reaps whoever is orphaned.
#
# The launcher is another process, because it must see for itself how its ranks ended.

PASSED_ON = frozenset(
    {
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
    }
)
"""What a launcher may be told to handle."""

LINGER_S = 90.0
"""When the launcher was killed, its sidecar stays for a grace and may be writing a checkpoint. With
process 1 all others end, so it stays until they have; but no longer, as something may hang."""


def stand_aside() -> None:
    """As process 1, let a child be the launcher and return in it; else return at once."""
    if os.getpid() != 1:
        return
    heard = {*PASSED_ON, signal.SIGCHLD}
    # Blocked before the fork, so that none is lost; and process 1 ignores what it doesn't await.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, heard)
    launcher = os.fork()
    if launcher:
        os._exit(attend(launcher))
    # A terminal's Ctrl-C reaches process 1 alone, which passes it on: once.
    os.setpgid(0, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def attend(launcher: int) -> int:
    """Look after this child until it has ended; its exit code, 128 + n for signal n."""
    heard = {*PASSED_ON, signal.SIGCHLD}
    while True:
        number = signal.sigwait(heard)
        if number != signal.SIGCHLD:
            with contextlib.suppress(ProcessLookupError):
                signal_child(own_child(launcher), number)
            continue
        ended, _ = reap()
        if launcher in ended:
            break
    status = ended[launcher]
    if os.WIFEXITED(status):
        return os.WEXITSTATUS(status)
    linger(time.monotonic() + LINGER_S)
    return 128 + os.WTERMSIG(status)


def reap() -> tuple[dict[int, int], bool]:
    """Wait statuses of all children that have ended, by pid; and whether others live."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended, False
        if pid == 0:
            return ended, True
        ended[pid] = status


def linger(until_s: float) -> None:
    """Wait until nobody is left, the time is over, or a signal asks not to."""
    heard = {*PASSED_ON, signal.SIGCHLD}
    while reap()[1] and (left_s := until_s - time.monotonic()) > 0:
        told = signal.sigtimedwait(heard, left_s)
        if told is not None and told.si_signo != signal.SIGCHLD:
            return
