"""How the ranks of this node ended, in the order in which they did.

A rank's exit status is looked at without reaping it: as long as it stays a zombie, neither its pid
nor its process group can be taken by anyone else, so that the group may still be signalled.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class RankEnd:
    """One ended rank. A negative exit code is the signal that ended it."""

    local_rank: int
    pid: int
    exit_code: int
    at_unix_s: float
    step: int = 0
    """Steps completed, from its page."""
    onset_step: int = -1
    """Since which step its losses were not finite; -1: the newest one was."""
    is_gloo_alone: bool = False
    """As for an Exit."""
    stepped_unix_s: float = 0.0
    """When its last step ended, or it began; 0: it left no page."""


def read_exit_code(pid: int) -> int | None:
    """Exit code of a child that has ended, without reaping it; None while it lives.

    A child that somebody else reaped has an unknown end, which counts as a failure.
    """
    try:
        status = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return 1
    if status is None:
        return None
    return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status


def in_order(ends: Iterable[RankEnd], said_at: Mapping[int, float]) -> list[RankEnd]:
    """Ends that were noticed in one look, the likeliest cause first.

    Who was ended by a signal had no say; whose exception came first, by its error file, is next:
    the others' are mostly that of having lost a peer.
    """
    return sorted(
        ends,
        key=lambda end: (end.exit_code >= 0, said_at.get(end.local_rank, end.at_unix_s)),
    )


def forgive(exit_code: int, said_finished: bool) -> int:
    """0 for the abort of a rank that had said it was finished.

    torch aborts at interpreter exit when a process group was destroyed under a living DDP object.
    """
    return 0 if exit_code == -signal.SIGABRT and said_finished else exit_code


def own_ends(
    ends: Iterable[RankEnd], dying: Container[int], finished: Container[int]
) -> list[RankEnd]:
    """Of the ends that came while ranks were ended, those that were not for that.

    dying, finished: local ranks that died, or had said that they ended well, before they were told
    to end. Whoever has said so may take a while to be gone, and its peers lose it meanwhile; the
    signal that ended it then was its launcher's.
    """
    return [
        end if end.local_rank in dying else replace(end, exit_code=max(end.exit_code, 0))
        for end in ends
        if end.local_rank in dying or end.local_rank in finished
    ]
