"""The loop's view of this node's slots: whether there is room, who was told, what lies in them."""

from __future__ import annotations

import contextlib
import logging
import os
import statistics
import threading
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from holdfast.contract.page import Flag, Word
from holdfast.contract.snapshot_file import COPIES_DIRECTORY, OWN_DIRECTORY
from holdfast_sidecar.checkpoint.snapshot.files import (
    NAMED,
    Checking,
    SlotBusy,
    SlotFile,
    arrange_slots,
    read_slots,
    remove_slots,
)
from holdfast_sidecar.checkpoint.snapshot.memory import SlotMemory
from holdfast_sidecar.config.settings import SnapshotSettings
from holdfast_sidecar.linux.cgroups import (
    AT_ONCE,
    BEFORE_ANYBODY_IS_KILLED,
    GivenBack,
    GroupMemory,
    find_places,
    parse_mounts,
    read_memory,
)
from holdfast_sidecar.linux.files import read_if_any
from holdfast_sidecar.policy.replication import (
    Margin,
    MemoryPlan,
    SnapshotSpace,
    Wish,
    plan_memory,
    rungs_given_up,
)
from holdfast_sidecar.ranks.ending import ActionRunner
from holdfast_sidecar.ranks.observation import RankLook
from holdfast_sidecar.ranks.page import Pages, order_snapshots
from holdfast_sidecar.records.checkpoint import SnapshotReport
from holdfast_sidecar.store.orders import Orders

log = logging.getLogger(__name__)


# Makes room for the snapshots of a node's ranks: plans the memory, then arranges the slots.
#
# Takes as long as the kernel needs to hand out the memory, so it runs beside the loop, in a thread.

NICENESS = 10


class MemoryReader(Protocol):
    """Says how much memory is free."""

    def read(self, held_bytes: int) -> SnapshotSpace:
        """The room there is, counting what snapshots hold already. Raises OSError."""

    def read_margin(self) -> Margin | None:
        """What is left to the job; None where that isn't known. Raises OSError."""


@dataclass(frozen=True)
class Needs:
    """What the ranks of a node asked for, and what the settings wish for them."""

    job: str
    wants: Mapping[int, int]
    """Rank -> bytes of one slot."""
    wish: Wish
    existing: int = field(default=-1, compare=False)
    """The newest step that all ranks are known to have; -1: none is known."""
    given_up: int = 0
    """Rungs of the ladder that the job has taken for itself in this attempt."""

    def are_met(self, slots: list[SlotFile], plan: MemoryPlan) -> bool:
        """Whether the slots are those that were planned, no more and no fewer."""
        found = [(one.rank, one.slot) for one in slots]
        planned = [(rank, slot) for rank in sorted(self.wants) for slot in range(plan.slots)]
        return found == planned and all(
            one.header.file_size >= self.wants[one.rank] for one in slots
        )


def allocate(
    shm: Path, needs: Needs, rooms: MemoryReader, memory: SlotMemory = NAMED
) -> MemoryPlan:
    """Make the slots; what was free a moment ago and is not any more means one rung down.

    Slots of ranks that this node no longer has are removed. Raises SlotBusy, or OSError when not
    even the room can be read.
    """
    directory = shm / OWN_DIRECTORY
    if needs.given_up:
        remove_copies(shm)
    remove_slots([one for one in read_slots(directory) if one.rank not in needs.wants])
    failures = 0
    while True:
        room = rooms.read(held_bytes(shm))
        plan = plan_memory(list(needs.wants.values()), room, needs.wish, failures, needs.given_up)
        try:
            for rank, size in sorted(needs.wants.items()):
                arrange_slots(directory, rank, size, plan.slots, needs.existing, needs.job, memory)
        except OSError as error:
            if plan.slots == 0:
                raise
            log.warning("no room for %d slots per rank after all: %s", plan.slots, error)
            failures = plan.rung + 1
        else:
            memory.give_back()
            return plan


def remove_copies(shm: Path) -> None:
    """Give back what copies of other nodes' snapshots take, but for those that are being written:
    copies are the first rung. Their leader is told, by the report, to bring no more."""
    for one in read_slots(shm / COPIES_DIRECTORY):
        with contextlib.suppress(SlotBusy):
            remove_slots([one])


def held_bytes(shm: Path) -> int:
    """What the slots and copies of this node take."""
    return sum(
        one.header.file_size
        for name in (OWN_DIRECTORY, COPIES_DIRECTORY)
        for one in read_slots(shm / name)
    )


@dataclass
class Allocation:
    """One allocation at a time, in a thread. What it was for is kept with what came of it."""

    shm: Path
    rooms: MemoryReader
    memory: SlotMemory = NAMED
    needs: Needs | None = None
    """What was last allocated for."""
    plan: MemoryPlan | None = None
    """What came of it; None while nothing has."""
    _asked: Needs | None = None
    _future: Future[MemoryPlan] | None = None
    _thread: ThreadPoolExecutor = field(default_factory=lambda: _one_thread())

    @property
    def is_busy(self) -> bool:
        """Whether one is under way."""
        return self._future is not None

    def begin(self, needs: Needs) -> None:
        """Start one."""
        self._asked = needs
        try:
            self._future = self._thread.submit(allocate, self.shm, needs, self.rooms, self.memory)
        except RuntimeError:  # no thread is left; what was submitted would run once there is one
            self._thread = _one_thread()

    def conclude(self) -> bool:
        """Take in what came of it, if it has ended; whether it just has. Raises what it raised."""
        if self._future is None or not self._future.done():
            return False
        ended, self._future = self._future, None
        self.plan = ended.result()
        self.needs = self._asked
        return True

    def wait(self) -> None:
        """Until the one under way has ended."""
        if self._future is not None:
            self._future.exception()


def _one_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "slots", initializer=_be_nice)


def _be_nice() -> None:
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)


PRESSED_S = 10.0
"""How long the loop looks more often for ranks that wait for their slots: long enough for the
kernel to hand out some 10 GB; after that half a second more or less makes no difference."""

MARGIN_EVERY_S = 5.0
"""A few small files of the kernel are read; memory of gigabytes takes longer to fill, and ranks
have let go of the slots that were taken away: they do at their next boundary."""

COSTS_KEPT = 5
"""Of the newest snapshots, for a median: one odd one is not what a snapshot costs."""

STEPS_BEFORE_DOUBT = 3
"""A rank asks for its slots at its first boundary after a step; it gets two more."""


@dataclass
class NodeSlots:
    """Asked at every tick; never waits."""

    settings: SnapshotSettings
    pages: Pages
    runner: ActionRunner
    allocation: Allocation
    checking: Checking = field(default_factory=Checking)
    is_pressed: bool = False
    _pressed_since_s: float | None = None
    _costs: dict[int, deque[float]] = field(default_factory=dict)
    _costs_of: tuple[int, dict[int, int]] = (-1, {})
    _asked: set[tuple[int, int]] = field(default_factory=set)
    """Attempt and rank: those that have asked for slots in this attempt."""
    _given_up: tuple[int, int] = (-1, 0)
    """Attempt, and the rungs of the ladder that its ranks have taken for themselves."""
    _next_margin_s: float = 0.0
    _told: str = ""
    _busy: str = ""

    @property
    def directory(self) -> Path:
        """Where the slots are."""
        return self.allocation.shm / OWN_DIRECTORY

    @property
    def _copies(self) -> Path:
        return self.allocation.shm / COPIES_DIRECTORY

    def follow(self, orders: Orders, looks: Sequence[RankLook], now_s: float) -> SnapshotReport:
        """What this node has now."""
        self._conclude()
        slots = read_slots(self.directory)
        self.checking.show(slots)
        self._note_who_asked(looks)
        needs = self._needs(orders, looks)
        if needs is not None and not self._must_wait(looks):
            needs = self._yield_memory(needs, looks, slots, now_s)
            if not self._is_met(needs, slots):
                self.allocation.begin(needs)
        is_ready = needs is not None and self._is_met(needs, slots)
        if is_ready:
            self._hand_out(orders, looks, slots)
        # A leader's order wakes the loop by itself.
        self._press(is_ready or not any(map(_wanted, looks)), orders, now_s)
        self._note_costs(looks)
        return self._report(looks, slots, is_ready)

    def _conclude(self) -> None:
        try:
            if not self.allocation.conclude() or self.allocation.plan is None:
                return
        except SlotBusy as busy:
            if str(busy) != self._busy:
                log.info("slots are arranged later: a rank is writing %s", busy)
            self._busy = str(busy)
            return
        if self.allocation.plan.why != self._told:
            self._told = self.allocation.plan.why
            log.info("%s", self._told)

    def _note_who_asked(self, looks: Sequence[RankLook]) -> None:
        named = {(look.identity.attempt, look.rank): _wanted(look) for look in looks}
        self._asked = {name for name in named if named[name] or name in self._asked}

    def _needs(self, orders: Orders, looks: Sequence[RankLook]) -> Needs | None:
        """What there shall be room for; None as long as that is not known of all ranks here.

        Ranks of a new attempt need what their predecessors did until they say otherwise: so they
        may be told at once, and take a snapshot of the first step.
        """
        plan = orders.plan
        if plan is None or not looks or plan.attempt != looks[0].identity.attempt:
            return None
        node = looks[0].identity.node
        expected = sum(member.slots for member in plan.members if member.node == node)
        earlier = self.allocation.needs.wants if self.allocation.needs is not None else {}
        wants = {look.rank: _wanted(look) or earlier.get(look.rank, 0) for look in looks}
        if len(looks) != expected or not all(wants.values()):
            return None
        has_peers = len(plan.members) > 1 and self.settings.peer != "off"
        wish = Wish(
            slots=self.settings.slots,
            share=self.settings.memory_share,
            copies=has_peers,
            slots_for_copies=int(self.settings.peer == "async"),
        )
        given_up = self._given_up[1] if self._given_up[0] == plan.attempt else 0
        return Needs(looks[0].identity.job, wants, wish, _existing(looks), given_up)

    def _yield_memory(
        self, needs: Needs, looks: Sequence[RankLook], slots: list[SlotFile], now_s: float
    ) -> Needs:
        """One rung less where the job has grown since; never more again within the attempt."""
        plan = self.allocation.plan
        if now_s < self._next_margin_s or plan is None or not self._is_met(needs, slots):
            return needs
        self._next_margin_s = now_s + MARGIN_EVERY_S
        try:
            margin = self.allocation.rooms.read_margin()
        except OSError:
            return needs
        given_up = 0 if margin is None else rungs_given_up(plan, margin)
        if not given_up:
            if needs.given_up and read_slots(self._copies):
                self.allocation.begin(needs)  # one that was on its way when copies were given up
            return needs
        self._given_up = (looks[0].identity.attempt, given_up)
        return replace(needs, given_up=given_up)

    def _must_wait(self, looks: Sequence[RankLook]) -> bool:
        """For an allocation under way; for the next attempt, where a rank is gone; and until all
        ranks have asked by themselves: before that they may have to load what lies in the slots."""
        return (
            self.allocation.is_busy
            or any(look.is_gone for look in looks)
            or not all(map(_wanted, looks))
        )

    def _is_met(self, needs: Needs, slots: list[SlotFile]) -> bool:
        made, plan = self.allocation.needs, self.allocation.plan
        return plan is not None and made == needs and needs.are_met(slots, plan)

    def _hand_out(
        self, orders: Orders, looks: Sequence[RankLook], slots: Sequence[SlotFile]
    ) -> None:
        """Tell the ranks, once the leader has said how often."""
        order, plan = orders.snapshot, self.allocation.plan
        if order is None or plan is None or order.attempt != looks[0].identity.attempt:
            return
        files = repr([(one.inode, one.header.file_size) for one in slots])
        made = f"{zlib.crc32(files.encode()):08x}"
        act = partial(order_snapshots, order, self.pages.held(), plan.slots, made)
        self.runner.run("order_snapshots", act)

    def _press(self, is_finished: bool, orders: Orders, now_s: float) -> None:
        if is_finished or not orders.store_up:
            self._pressed_since_s = None
        elif self._pressed_since_s is None:
            self._pressed_since_s = now_s
        since_s = self._pressed_since_s
        self.is_pressed = since_s is not None and now_s - since_s < PRESSED_S

    def _note_costs(self, looks: Sequence[RankLook]) -> None:
        """What the newest snapshots cost, as far as they were seen; a first one costs more."""
        attempt = looks[0].identity.attempt if looks else -1
        if attempt != self._costs_of[0]:
            self._costs, self._costs_of = {}, (attempt, {})
        for look in looks:
            taken = look.words[Word.SNAPSHOTS_TAKEN]
            if taken > max(1, self._costs_of[1].get(look.rank, 1)):
                costs = self._costs.setdefault(look.rank, deque(maxlen=COSTS_KEPT))
                costs.append(look.words[Word.SNAPSHOT_LAST_NS] / 1e9)
            self._costs_of[1][look.rank] = taken

    def _slot_bytes(self, slots: Sequence[SlotFile]) -> int:
        return sum(one.header.file_size for one in (*slots, *read_slots(self._copies)))

    def _report(
        self, looks: Sequence[RankLook], slots: Sequence[SlotFile], is_ready: bool
    ) -> SnapshotReport:
        plan = self.allocation.plan
        report = SnapshotReport(
            attempt=looks[0].identity.attempt if looks else -1,
            wants=any(map(_wanted, looks)),
            slot_bytes=self._slot_bytes(slots),
            held=_held(slots),
            newest=_existing(looks),
            newest_sealed_s=_sealed_s(slots, _existing(looks)),
            taken=min((look.words[Word.SNAPSHOTS_TAKEN] for look in looks), default=0),
            blocked_s=max(map(statistics.median, self._costs.values()), default=0.0),
        )
        if silent := self._silent(looks):
            text = f"ranks {silent} can't say how much room their state takes; their logs say why"
            return replace(report, wants=True, obstacle=text, short_of="state")
        if is_ready and plan is not None:
            return replace(
                report,
                slots=plan.slots,
                copies_fit=plan.copies,
                obstacle=plan.why if plan.short_of else "",
                short_of=plan.short_of,
            )
        return report

    def _silent(self, looks: Sequence[RankLook]) -> list[int]:
        """Ranks that can't copy their state any more, or have registered some and never asked for
        room while others of this node did."""
        others_do = any(map(_wanted, looks))
        return [
            look.rank
            for look in looks
            if not _wanted(look)
            and (
                (look.identity.attempt, look.rank) in self._asked
                or (others_do and _should_have_asked(look))
            )
        ]


def _wanted(look: RankLook) -> int:
    return look.words[Word.SNAPSHOT_WANTED]


def _existing(looks: Sequence[RankLook]) -> int:
    """The newest step that one of them knows to exist on all ranks; -1: none."""
    return max((look.words[Word.SNAPSHOT_EXISTING] for look in looks), default=0) - 1


def _sealed_s(slots: Sequence[SlotFile], step: int) -> float:
    """When the last rank of this node had sealed this step; 0: no slot has it."""
    return max(
        (one.header.sealed_ns / 1e9 for one in slots if one.sealed_step == step >= 0), default=0.0
    )


def _held(slots: Sequence[SlotFile]) -> dict[str, list[int]]:
    sealed = [one for one in slots if one.sealed_step >= 0]
    newest_first = sorted(
        sealed, key=lambda one: (one.header.attempt, one.sealed_step), reverse=True
    )
    held: dict[str, list[int]] = {}
    for one in newest_first:
        held.setdefault(str(one.rank), []).append(one.sealed_step)
    return held


def _should_have_asked(look: RankLook) -> bool:
    return (
        look.has(Flag.STATE_REGISTERED)
        and look.step >= look.words[Word.RESUMED_STEP] + STEPS_BEFORE_DOUBT
    )


# How much memory is free for snapshots: shared memory, the machine, and its control groups.


@dataclass(frozen=True)
class RoomReader:
    """Where to look; the defaults are this machine."""

    shared_memory: Path
    reserve_bytes: int
    proc: Path = Path("/proc")
    memory: SlotMemory | None = None
    """What slots are made of: without names they take no room in `shared_memory`."""

    def read(self, held_bytes: int) -> SnapshotSpace:
        """The room there is. `held_bytes`: what snapshots take of it already. Raises OSError."""
        has_names = self.memory is None or self.memory.has_names
        group = free_in_groups(self.proc / "self")
        return SnapshotSpace(
            shared_memory=self._free_in_files() + held_bytes if has_names else None,
            memory=parse_available((self.proc / "meminfo").read_text()) + held_bytes,
            control_group=None if group is None else group + held_bytes,
        )

    def read_margin(self) -> Margin | None:
        """What is left to the job; None where the kernel doesn't tell. Raises OSError."""
        meminfo = (self.proc / "meminfo").read_text()
        free, limit = parse_available(meminfo), parse_entry(meminfo, "MemTotal")
        if not free or not limit:
            return None
        group = _read_groups(self.proc / "self", BEFORE_ANYBODY_IS_KILLED)
        if group.free_bytes is None or group.limit_bytes is None:
            return Margin(free, limit)
        return Margin(min(free, group.free_bytes), min(limit, group.limit_bytes))

    def _free_in_files(self) -> int:
        facts = os.statvfs(self.shared_memory)
        reserve_bytes = least_reserve(facts.f_blocks * facts.f_frsize, self.reserve_bytes)
        return facts.f_bavail * facts.f_frsize - reserve_bytes


def is_small(size_bytes: int, reserve_bytes: int) -> bool:
    """Whether a file system is no room for what shall be left free in it, and as much again."""
    return size_bytes < 2 * reserve_bytes


def least_reserve(size_bytes: int, reserve_bytes: int) -> int:
    """What to leave free in a file system of this size: of a small one half. Those who need more of
    it (DataLoader workers, gloo) would run out of it without us as well."""
    return size_bytes // 2 if is_small(size_bytes, reserve_bytes) else reserve_bytes


def parse_available(meminfo: str) -> int:
    """MemAvailable of /proc/meminfo, bytes; 0 when it isn't told."""
    return parse_entry(meminfo, "MemAvailable")


def parse_entry(meminfo: str, name: str) -> int:
    """A line of /proc/meminfo, bytes; 0 when it isn't there."""
    for line in meminfo.splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def free_in_groups(process: Path) -> int | None:
    """What the tightest of the control groups of this process (its directory in /proc) still
    allows; None without a limit."""
    return _read_groups(process, AT_ONCE).free_bytes


def _read_groups(process: Path, given_back: GivenBack) -> GroupMemory:
    """Inside a container the path of its own group is often not visible, and the group's files lie
    where the hierarchy is mounted."""
    mounts = parse_mounts(read_if_any(process / "mountinfo"))
    places = find_places("memory", read_if_any(process / "cgroup"), mounts)
    return read_memory(places, given_back)
