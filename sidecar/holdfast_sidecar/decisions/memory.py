"""How many slots this node's ranks get, and whether there is room for copies of another node's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

COPIES_KEPT = 2
"""Of each rank of another node: one torn in the middle leaves the one before."""

LEAST_LEFT = 0.1
"""Of the memory that the job may use. Below it a job that goes on growing meets the OOM killer
within minutes; above it loaders and allocators breathe, and slots would come and go with them."""


@dataclass(frozen=True)
class Room:
    """What is free for snapshots, bytes. What they take already counts as free: it is theirs."""

    shared_memory: int | None
    """Of the shared-memory file system, the reserve beside the pages taken off; None: snapshots
    take none of it."""
    memory: int
    """That the machine can give without swapping."""
    control_group: int | None = None
    """Until the nearest limit of a control group; None: there is no limit."""

    @property
    def least(self) -> int:
        """What all of them allow."""
        shared = self._memory if self.shared_memory is None else self.shared_memory
        return max(0, min(shared, self._memory))

    @property
    def bound_by(self) -> str:
        """What allows least: `shared_memory` or `memory`."""
        is_memory = self.shared_memory is None or self._memory < self.shared_memory
        return "memory" if is_memory else "shared_memory"

    @property
    def _memory(self) -> int:
        if self.control_group is None:
            return self.memory
        return min(self.memory, self.control_group)


@dataclass(frozen=True)
class Margin:
    """What the job itself may still take, bytes: what snapshots hold is not counted as free."""

    free: int
    """Before the kernel kills somebody."""
    limit: int
    """Of the control group, or what the machine has."""


@dataclass(frozen=True)
class Wish:
    """What the settings ask for."""

    slots: int
    """Per rank."""
    share: float
    """Of the room that may be taken."""
    copies: bool = False
    """Whether other nodes are there, so that their snapshots may be copied here."""
    slots_for_copies: int = 0
    """More slots per rank where copies are made of them."""


@dataclass(frozen=True)
class MemoryPlan:
    """What was decided. `slots` 0: no snapshots here, checkpoints are written by the ranks."""

    rung: int
    """How far down the ladder it is; 0: all that was wished for."""
    slots: int
    copies: bool
    size_bytes: int
    """Of all slots and copies."""
    why: str
    """The reckoning in people's words."""
    short_of: str = ""
    """`shared_memory` or `memory` where it is less than wished; else empty."""


def plan_memory(
    wants: Sequence[int], room: Room, wish: Wish, failures: int = 0, given_up: int = 0
) -> MemoryPlan:
    """The first rung of the ladder that fits.

    wants: bytes of one slot, by rank of this node. failures: how many rungs could not be made,
    though they fitted a moment before. given_up: how many the job has taken for itself.
    """
    allowed = int(room.least * wish.share)
    rungs = list(_rungs(wish))
    first = max(failures, given_up)
    fit = [n for n, rung in enumerate(rungs) if n >= first and _size(wants, *rung) <= allowed]
    rung = fit[0] if fit else len(rungs) - 1
    slots, copies = rungs[rung]
    reckoning = _reckoning(wants, slots, copies, room)
    shortage, short_of = "", ""
    if given_up:
        shortage, short_of = _GROWN, "memory"
    elif rung > 0:
        shortage, short_of = _shortage(wants, rungs[0], wish, room), room.bound_by
    return MemoryPlan(
        rung=rung,
        slots=slots,
        copies=copies,
        size_bytes=_size(wants, slots, copies),
        why=reckoning + shortage,
        short_of=short_of,
    )


def rungs_given_up(plan: MemoryPlan, margin: Margin) -> int:
    """How many rungs the job shall have for itself, one more than this plan where little is left;
    0: it has enough, or snapshots take nothing that it could have."""
    is_short = margin.free < LEAST_LEFT * margin.limit
    return plan.rung + 1 if is_short and plan.size_bytes > 0 else 0


def gigabytes(size: float) -> str:
    """Bytes for people, two digits: `0.9 GB`, `32 MB`."""
    if size >= 0.1e9:
        return f"{size / 1e9:.1f} GB"
    return f"{size / 1e6:.1f} MB" if size < 10e6 else f"{size / 1e6:.0f} MB"


def _rungs(wish: Wish) -> Iterator[tuple[int, bool]]:
    """(slots, copies), best first: without copies, then with fewer slots, then none."""
    if wish.copies:
        yield wish.slots + wish.slots_for_copies, True
    for slots in range(wish.slots, -1, -1):
        yield slots, False


def _size(wants: Sequence[int], slots: int, copies: bool) -> int:
    """The node whose snapshots are copied here is taken to be like this one."""
    return sum(wants) * (slots + COPIES_KEPT * copies)


def _reckoning(wants: Sequence[int], slots: int, copies: bool, room: Room) -> str:
    free = f"of {gigabytes(room.least)} free"
    if slots == 0:
        return f"snapshots: none, {free}"
    each = gigabytes(max(wants))
    sides = [f"{_count(len(wants), 'rank')} x {_count(slots, 'slot')} x {each}"]
    if copies:
        sides.append(f"peer copies {gigabytes(COPIES_KEPT * sum(wants))}")
    whole = gigabytes(_size(wants, slots, copies))
    return f"snapshots: {' + '.join(sides)} = {whole} {free}"


_GROWN = (
    f"; less than {LEAST_LEFT:.0%} of its memory was left to the job, so snapshots take less until "
    "the next attempt"
)


def _shortage(wants: Sequence[int], best: tuple[int, bool], wish: Wish, room: Room) -> str:
    bound = "shared memory" if room.bound_by == "shared_memory" else "memory"
    needed = gigabytes(_size(wants, *best))
    return (
        f"; {_count(best[0], 'slot')}{' and peer copies' * best[1]} would take {needed}, and "
        f"{wish.share:.0%} of the free {bound} may be taken"
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
