"""A rank that waits for its next batch: is what loads it at work, or stopped, or dead?"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from holdfast_sidecar.closer_look import Child, Scrutiny
from holdfast_sidecar.linux.syscalls import Where

STOPPED_FOR_S = 0.45
"""Looks this far apart must all find a worker stopped, as for a rank."""

BY_ITSELF = {
    Where.CPU: "it computes itself",
    Where.STORAGE: "it waits for storage itself",
    Where.NETWORK: "it waits for the network itself",
}
"""Where a rank is that makes its batches itself."""

FED = frozenset({Where.QUEUE, Where.PROCESS, Where.LOCK})
"""Where a rank waits for what others make."""


class LoaderState(Enum):
    """What is known of what loads."""

    UNKNOWN = 0
    WORKING = 1
    STOPPED = 2
    DEAD = 3


@dataclass(frozen=True)
class Loader:
    """A judgement, and what it stands on."""

    state: LoaderState
    evidence: str = ""


def judge_loader(scrutiny: Scrutiny | None, process_state: str, patience_s: float) -> Loader:
    """Judge what loads the batches of a rank that is in its data phase.

    process_state: letter of the rank's own process (D: it waits for a disk).
    patience_s: as for `has_rested`.
    """
    if process_state == "D":
        return Loader(LoaderState.WORKING, "it waits for storage itself (state D)")
    if scrutiny is None:
        return Loader(LoaderState.UNKNOWN)
    # While anybody else is at work, the batch may come from there.
    has_rested = scrutiny.has_rested(patience_s)
    stopped = _stopped_worker(scrutiny) if has_rested and _is_fed(scrutiny) else None
    if stopped is not None:
        text = f"{_name(stopped)}, which loads for it, is stopped (state T)"
        return Loader(LoaderState.STOPPED, text)
    if working := _work(scrutiny):
        return Loader(LoaderState.WORKING, working)
    dead = _dead_worker(scrutiny) if has_rested else None
    if dead is not None:
        return Loader(LoaderState.DEAD, f"{_name(dead)}, which loads for it, {_ending(dead)}")
    return Loader(LoaderState.UNKNOWN)


def _stopped_worker(scrutiny: Scrutiny) -> Child | None:
    since_s = {
        pid: since
        for pid, since in scrutiny.stopped.items()
        if scrutiny.look.at_s - since >= STOPPED_FOR_S
    }
    return next((c for c in scrutiny.look.children if c.is_worker and c.pid in since_s), None)


def _dead_worker(scrutiny: Scrutiny) -> Child | None:
    """A worker that ended badly, while the rank waits for what others make."""
    if not _is_fed(scrutiny):
        return None
    return next((c for c in scrutiny.look.children if c.is_worker and c.has_died), None)


def _is_fed(scrutiny: Scrutiny) -> bool:
    """Whether the rank was found twice to wait for what others make."""
    looks = (scrutiny.before, scrutiny.look)
    return all(
        look is not None and look.main is not None and look.main.where in FED for look in looks
    )


def _work(scrutiny: Scrutiny) -> str:
    look = scrutiny.look
    if look.main is not None and look.main.where in BY_ITSELF:
        return BY_ITSELF[look.main.where]
    if look.at_work:
        return f"its {look.at_work}"
    child = scrutiny.busy_child()
    if child is not None:
        return f"{_name(child)} is at work"
    return "it reads" if scrutiny.moved_bytes else ""


def _name(child: Child) -> str:
    return f"process {child.pid} ({child.name})"


def _ending(child: Child) -> str:
    number = child.exit_status & 0x7F
    if number:
        return f"was ended by signal {number}"
    return f"exited with code {child.exit_status >> 8}"
