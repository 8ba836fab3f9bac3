"""A closer look at a rank under suspicion: where its threads wait, and how its children stand.

Plain data and what follows from two such looks; reading is for `probes.closely`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from holdfast_sidecar.linux.syscalls import Wait, Where

BUSY_TICKS_PER_S = 5.0
"""CPU time, in clock ticks, from which on a child counts as at work: 5 % of a core. A worker that
only looks into its empty queue every few seconds takes a thousandth."""

MOVED_BYTES = 65_536
"""Read and written by a rank between two looks, from which on it counts as at work: an answer about
its collectives, or a line into a log, is less."""

LOADER_WORKER = "pt_data_worker"
"""What torch's DataLoader calls its workers."""

AT_WORK = frozenset(
    {
        *(Where.SLEEP, Where.NETWORK, Where.STORAGE),
        *(Where.PROCESS, Where.DEVICE, Where.OTHER),
    }
)
"""What another thread or a child may wait for on behalf of who waits for it. A pause between two
tries to upload is one, too; and so may be what we don't know."""

RESTED_LOOKS = 5
"""In so many looks in a row nobody was at work: who works also waits for a lock now and then."""


@dataclass(frozen=True)
class Child:
    """A child of a rank, or a child's child, as /proc shows it."""

    pid: int
    name: str
    state: str
    cpu_ticks: int
    is_worker: bool
    """It runs the rank's own program: a loader's worker, or another fork of it."""
    exit_status: int = 0
    """As wait(2) would tell it; of one that ended and was not waited for."""
    transferred: int | None = None
    """Bytes read and written by calls so far; None when that can't be read."""
    wait: Wait | None = None
    """Where its main thread waits, or the one of its threads that is at work."""

    @property
    def has_died(self) -> bool:
        """Whether it ended badly."""
        return self.state in ("Z", "X") and self.exit_status != 0


@dataclass(frozen=True)
class CloserLook:
    """One closer look."""

    at_s: float
    mark: tuple[int, int, int]
    """Claim, progress and step of the rank: it moved in between when they differ."""
    main: Wait | None = None
    """None: the kernel doesn't let us see it."""
    at_work: str = ""
    """Which other thread of it may be at work, in words; empty: none."""
    children: tuple[Child, ...] = ()
    transferred: int | None = None
    pauses_s: tuple[float, ...] = ()
    """For how long those other threads wait at most that will go on by themselves."""


@dataclass(frozen=True)
class Scrutiny:
    """What closer looks have shown since the rank last moved."""

    look: CloserLook
    before: CloserLook | None = None
    """The look before, of the same standstill."""
    stands_since_s: float = 0.0
    """Since when the main thread was found in the very same wait."""
    stopped: Mapping[int, float] = field(default_factory=dict)
    """Children (by pid) that every look since then found stopped."""
    rest: CloserLook | None = None
    """The first of the latest looks that found nobody at work; None: the newest found somebody."""
    rested_looks: int = 0
    """How many looks found nobody at work since then."""

    @property
    def stands_s(self) -> float:
        """For how long the main thread has been seen in the very same wait."""
        return self.look.at_s - self.stands_since_s

    def has_rested(self, patience_s: float) -> bool:
        """Whether for long enough nobody but the main thread was at work, nor only paused.

        patience_s: a pause that takes longer counts as one without an end.
        """
        if self.rest is None or self.rested_looks < RESTED_LOOKS:
            return False
        waits = (child.wait for child in self.rest.children if child.wait is not None)
        ends_s = (wait.ends_unaided_s for wait in waits if wait.where is Where.LOCK)
        all_s = (*self.rest.pauses_s, *ends_s)
        # However great the patience: what has no end is no pause.
        pauses_s = [one for one in all_s if one <= patience_s and not math.isinf(one)]
        return self.look.at_s > self.rest.at_s + max(pauses_s, default=0.0)

    def busy_child(self) -> Child | None:
        """A child that used a CPU, moved bytes, or waits for storage, network or a timer."""
        earlier = {} if self.before is None else {c.pid: c for c in self.before.children}
        elapsed_s = 0.0 if self.before is None else self.look.at_s - self.before.at_s
        for child in self.look.children:
            if _is_busy(child, earlier.get(child.pid), elapsed_s):
                return child
        return None

    @property
    def moved_bytes(self) -> int:
        """What the rank itself read and wrote between the two looks, as far as that is known."""
        now = self.look.transferred
        before = None if self.before is None else self.before.transferred
        return 0 if now is None or before is None else now - before


def scrutinise(before: Scrutiny | None, look: CloserLook) -> Scrutiny:
    """What is known after one more closer look; it starts anew when the rank has moved."""
    if before is None or before.look.mark != look.mark:
        return _with_rest(Scrutiny(look, None, look.at_s, _stopped({}, look)))
    is_same = (
        look.main is not None
        and before.look.main is not None
        and (look.main.place == before.look.main.place and look.main.where is not Where.CPU)
    )
    after = replace(
        before,
        look=look,
        before=before.look,
        stands_since_s=before.stands_since_s if is_same else look.at_s,
        stopped=_stopped(before.stopped, look),
    )
    return _with_rest(after)


def _with_rest(scrutiny: Scrutiny) -> Scrutiny:
    look = scrutiny.look
    is_at_work = look.at_work or scrutiny.moved_bytes >= MOVED_BYTES
    if is_at_work or scrutiny.busy_child() is not None:
        return replace(scrutiny, rest=None, rested_looks=0)
    rest = look if scrutiny.rest is None else scrutiny.rest
    return replace(scrutiny, rest=rest, rested_looks=scrutiny.rested_looks + 1)


def _stopped(before: Mapping[int, float], look: CloserLook) -> Mapping[int, float]:
    return {c.pid: before.get(c.pid, look.at_s) for c in look.children if c.state == "T"}


def _is_busy(child: Child, earlier: Child | None, elapsed_s: float) -> bool:
    if child.state in ("T", "Z", "X"):
        return False
    if child.state in ("D", "t") or (child.wait is not None and child.wait.where in AT_WORK):
        return True
    if earlier is None or elapsed_s <= 0:
        return child.state == "R"
    ticks = child.cpu_ticks - earlier.cpu_ticks
    if ticks > 1 + BUSY_TICKS_PER_S * elapsed_s or child.transferred != earlier.transferred:
        return True
    # Of one whose calls may not be read only torch's own workers are known to rest.
    return child.wait is None and not child.name.startswith(LOADER_WORKER)
