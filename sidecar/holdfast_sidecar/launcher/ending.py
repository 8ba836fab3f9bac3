"""Ends the ranks of this node: all groups at once, with a grace that holds, then for good.

Ranks are children that nobody has reaped, so their process groups are surely theirs.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Sequence

from holdfast import ending_processes
from holdfast.identity import read_status
from holdfast.page import END_SIGNAL
from holdfast.permit import own_child, own_group, own_session
from holdfast_sidecar.launcher.rank_ends import read_exit_code
from holdfast_sidecar.linux.process import is_tracker, sessions_of, wait_for_trackers

logger = logging.getLogger(__name__)

LOOK_S = 0.05
"""How often a stopped rank is looked for while the grace runs."""

KILL_PATIENCE_S = 5.0
"""After SIGKILL a process ends at once, unless the kernel holds it (D state)."""

HELD_PATIENCE_S = 60.0
"""For one that the kernel holds: it may hold its GPU's memory, which the next attempt needs."""

TELL_AFTER_S = 1.0
"""Most ranks end sooner; whoever asked for the end then hears what is waited for."""


def end_ranks(
    pids: Iterable[int],
    first: signal.Signals,
    grace_s: float,
    holding: Sequence[int] = (),
    is_asked: bool = False,
) -> None:
    """Signal every rank's group with `first`, wait at most `grace_s`, then SIGKILL what is left.

    Ranks that hold SIGTERM end at once, as they would without. Also kills what the ranks left
    behind in their groups (workers of theirs). A second signal to
    the launcher, which arrives here as an exception, cuts the grace short; `is_asked`: there was a
    first, and whoever sent it is told so.
    """
    ranks = list(pids)
    is_cut = True
    try:
        if grace_s > 0:
            end_holding(alive(holding), first)
            for pid in alive(ranks):
                signal_group(pid, first)
            end_s = time.monotonic() + grace_s
            if is_asked and grace_s > TELL_AFTER_S and not _wait_for_end(ranks, TELL_AFTER_S):
                words = "ending %d ranks, which get up to %g s; once more kills them"
                logger.warning(words, len(alive(ranks)), grace_s)
            _wait_for_end(ranks, end_s - time.monotonic())
        is_cut = False
    finally:
        late = alive(ranks)
        if late and is_cut:
            logger.warning("asked once more: %d ranks are killed", len(late))
        elif late and grace_s > 0:
            logger.warning("%d ranks did not end within %g s: killed", len(late), grace_s)
        trackers = _kill_but_trackers(ranks)
        await_killed(ranks, is_leaving=is_asked or is_cut)
        wait_for_trackers(trackers)
        for pid in ranks:
            signal_group(pid, signal.SIGKILL)


def await_killed(
    pids: Sequence[int],
    is_leaving: bool,
    wait: Callable[[Sequence[int], float], bool] | None = None,
) -> None:
    """Wait for ranks that were killed; longer, and with a word, for those that the kernel holds.
    is_leaving: no attempt follows here that they could be in the way of."""
    wait = wait or wait_for_exit
    if wait(pids, KILL_PATIENCE_S):
        return
    held = ", ".join(str(pid) for pid in alive(pids))
    words = "killed, and held by the kernel: pid %s; until it ends it may hold its GPU's memory"
    logger.warning(words, held)
    if not is_leaving and not wait(pids, HELD_PATIENCE_S):
        logger.warning("not waited for any longer: pid %s", held)


def end_holding(pids: Iterable[int], first: signal.Signals) -> None:
    """End ranks that hold SIGTERM where that would have ended them. They must not be reaped yet."""
    if first != signal.SIGTERM:
        return
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            ending_processes.signal_child(own_child(pid), END_SIGNAL)


def alive(pids: Sequence[int]) -> list[int]:
    """Those that have not ended."""
    return [pid for pid in pids if read_exit_code(pid) is None]


def signal_group(pid: int, number: signal.Signals) -> None:
    """Signal the group that a rank leads; the rank alone when it leads none (--run-path)."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if os.getpgid(pid) == pid:
            ending_processes.signal_group(own_group(pid), number)
        else:
            ending_processes.signal_child(own_child(pid), number)


def wait_for_exit(pids: Sequence[int], timeout_s: float) -> bool:
    """Wait until all have ended; False when the time was over first."""
    poller = select.poll()
    handles: dict[int, int] = {}
    try:
        for pid in alive(pids):
            with contextlib.suppress(ProcessLookupError):
                handles[os.pidfd_open(pid)] = pid
        for handle in handles:
            poller.register(handle, select.POLLIN)
        waiting = set(handles)
        end = time.monotonic() + timeout_s
        while waiting and (left := end - time.monotonic()) > 0:
            for handle, _ in poller.poll(left * 1000):
                poller.unregister(handle)
                waiting.discard(handle)
        return not waiting
    finally:
        for handle in handles:
            os.close(handle)


def _wait_for_end(ranks: Sequence[int], grace_s: float) -> bool:
    """Whether all have ended in time."""
    end = time.monotonic() + grace_s
    while (left := end - time.monotonic()) > 0:
        _kill_stopped(alive(ranks))
        if wait_for_exit(ranks, min(LOOK_S, left)):
            return True
    return False


def _kill_but_trackers(ranks: Sequence[int]) -> list[int]:
    """SIGKILL the ranks and all of their sessions but resource trackers; answer those."""
    trackers: list[int] = []
    for pid in {*ranks, *sessions_of(ranks)}:
        if is_tracker(pid):
            trackers.append(pid)
        else:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                permit = own_child(pid) if pid in ranks else own_session(pid, ranks)
                ending_processes.signal_child(permit)
    return trackers


def _kill_stopped(pids: Iterable[int]) -> None:
    """A stopped process can't act on SIGTERM: the grace would be waited for nothing."""
    for pid in pids:
        status = read_status(pid)
        if status is not None and status.state in ("T", "t"):
            signal_group(pid, signal.SIGKILL)
