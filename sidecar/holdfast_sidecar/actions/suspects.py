"""Whose stacks are read from outside: who can't answer, and what a culprit waits for. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from holdfast.identity import parse_stat
from holdfast_sidecar.actions.spied_stacks import Suspect

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
) -> list[Suspect]:
    """Of the living ranks in `pids` (rank -> pid): who has not answered, the culprits' children
    that are stopped or sit in the kernel, and culprits whose native frames are wanted."""
    found = [
        Suspect(rank, pid, state_of(views[rank]) in STOPPED, rank in answered)
        for rank, pid in pids.items()
        if rank not in answered or (wants_native and rank in culprits)
    ]
    for rank in pids:
        if rank in culprits:
            found += _stuck_children(views[rank])
    return found


def _stuck_children(view: View) -> Iterator[Suspect]:
    """A loader worker that was stopped, or reads a file that never comes. Known by its pid, less
    than zero: it is no rank."""
    stuck = {
        int(pid): state
        for pid, child in view["children"].items()
        if (state := _state_of_child(child)) in STUCK
    }
    for pid, state in sorted(stuck.items())[:CHILDREN_AT_ONCE]:
        yield Suspect(-pid, pid, state in STOPPED, has_answered=False)


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
