"""The loop's view of this node's slots: whether there is room, who was told, what lies in them."""

from __future__ import annotations

import logging
import statistics
import zlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from holdfast.page import Flag, Word
from holdfast.snapshot_file import COPIES_DIRECTORY, OWN_DIRECTORY
from holdfast_sidecar.config.settings import SnapshotSettings
from holdfast_sidecar.policy.replication import Wish, rungs_given_up
from holdfast_sidecar.ranks.ending import ActionRunner
from holdfast_sidecar.ranks.observation import RankLook
from holdfast_sidecar.ranks.page import Pages, order_snapshots
from holdfast_sidecar.records.checkpoint import SnapshotReport
from holdfast_sidecar.snapshots.allocation import Allocation, Needs
from holdfast_sidecar.snapshots.checking import Checking
from holdfast_sidecar.snapshots.slot_files import SlotBusy, SlotFile, read_slots
from holdfast_sidecar.store.orders import Orders

log = logging.getLogger(__name__)

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
