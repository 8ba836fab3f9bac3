"""Takes the snapshots of one rank: finds a slot for each, seals it, and learns which exist."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from holdfast.contract.page import Phase
from holdfast.guard import LIMIT, Guard
from holdfast.recording.interface import Recording, count_error
from holdfast.recording.placement import Placement
from holdfast.snapshots import retention
from holdfast.snapshots.captured import Captured, capture
from holdfast.snapshots.copying import Copying
from holdfast.snapshots.filling import Filling
from holdfast.snapshots.layout import CannotLayOut
from holdfast.snapshots.page_report import SnapshotReportWriter
from holdfast.snapshots.replica_ack import Partner
from holdfast.snapshots.retention import Known
from holdfast.snapshots.slot import Author, Slot, Writing
from holdfast.snapshots.slot_pool import SlotPool
from holdfast.snapshots.verdicts import Verdicts
from holdfast.state.agreement import BoardLost
from holdfast.state.data_position import Position
from holdfast.state.own_state import CannotSave
from holdfast.state.saving import Mark, Savable

log = logging.getLogger(__name__)

OVERLAPPING_SLOTS = 3
"""A copy under way takes one; the newest that exists and the newest sealed take the others."""

MOST_FAILURES = LIMIT - 1
"""Before the guard switches snapshots off without a word, which the others would wait for."""

_NEVER = 1 << 62


@dataclass(frozen=True)
class UnderWay:
    """A copy that was begun and is not sealed yet."""

    step: int
    writing: Writing
    copying: Copying
    size_bytes: int


@dataclass(frozen=True)
class Sealed:
    """What came of the newest snapshot."""

    step: int
    size_bytes: int
    blocked_ns: int


@dataclass
class Taking:
    """Snapshots of one rank in one attempt."""

    recording: Recording
    place: Placement
    savable: Savable
    author: Author
    shelf: SlotPool
    partner: Partner | None = None
    clock_ns: Callable[[], int] = time.monotonic_ns
    ancestors: tuple[str, ...] = ()
    obstacle: str = ""
    """Why this rank takes none; empty: nothing is in the way."""
    newest: Sealed | None = None
    next_question: int = _NEVER
    """Boundary from which on to ask whether the newest exists."""
    _verdicts: Verdicts = field(init=False)
    _telling: SnapshotReportWriter = field(init=False)
    _filling: Filling = field(init=False)
    _under_way: UnderWay | None = None
    _blocked_ns: int = 0
    _is_cut_off: bool = False
    _skips: int = 0
    _skips_since_ns: int = 0
    _failures: int = 0

    def __post_init__(self) -> None:
        self._verdicts = Verdicts(self.place)
        self._telling = SnapshotReportWriter(self.recording)
        guard = Guard(lambda: count_error(self.recording))
        self._filling = Filling(self.author, self.place, self.savable.registered, guard)
        self.shelf.prepare = self._filling.prepare
        self.shelf.drop = self._filling.drop

    @property
    def is_planned(self) -> bool:
        """Whether it was worked out what there is to copy, or why it can't be."""
        return self._filling.planned is not None or bool(self.obstacle)

    def plan(self, step: int, position: Position) -> None:
        """Work out what there is to copy, and say how much room it needs."""
        captured = self._capture(step, position)
        if captured is not None:
            self._telling.wants(self._filling.plan(captured).wanted_size)

    @property
    def is_ready(self) -> bool:
        """Whether the others were told that this rank takes part."""
        return self._verdicts.said_ready or bool(self.obstacle)

    def await_slots(self, slots: int) -> None:
        """Wait until they are ready, if they are there."""
        before = self.recording.enter(Phase.RESTORING)
        try:
            self._has_room(slots, must=True)
        finally:
            self.recording.enter(before)

    def prepare(self, slots: int) -> None:
        """Have the slots made ready before they are needed, and say so when they are."""
        if self._has_room(slots, must=False):
            self._ask_whether_all_are_ready()
            self._telling.known(self.shelf.known)

    def look_again(self, slots: int) -> bool:
        """See which slots are still there, and let go of the others: their memory is wanted
        elsewhere. False: a copy is under way, so ask again at the next boundary."""
        if self._under_way is not None:
            return False
        if self.shelf.slots:
            self.shelf.look(slots, 0)
            self._telling.known(self.shelf.known)
        return True

    def has(self, step: int) -> bool:
        """Whether a slot holds that step, whole."""
        return step in self.shelf.known.sealed

    def is_copying(self, step: int) -> bool:
        """Whether the copy of that step is under way."""
        return self._under_way is not None and self._under_way.step == step

    def hold(self, steps: frozenset[int]) -> None:
        """Keep these steps, and no others, from being overwritten."""
        self.shelf.known = replace(self.shelf.known, held=steps)

    def take(self, step: int, position: Callable[[], Position], slots: int, must: bool) -> None:
        """Take the snapshot of this boundary, unless no slot is free.

        `slots`: how many there are; 0: as many as are found. `must`: an order wants it.
        """
        if self.has(step) or self.is_copying(step) or not self._is_in_turn(step, slots, must):
            return
        start_ns = self.clock_ns()
        before = self.recording.enter(Phase.SAVING)
        is_over = False
        try:
            self.finish(wait=must)
            self._take(step, position)
            is_over = True
        finally:
            if not is_over:
                self._judge(lambda known: self._verdicts.void(known, step))
                self._note_failure()
            self.recording.enter(before)
            self._blocked_ns += self.clock_ns() - start_ns
            self._tell_blocked()

    def finish(self, wait: bool) -> None:
        """Seal the copy under way if all of it is there, or wait until it is."""
        copy = self._under_way
        if copy is None or not (wait or copy.copying.is_done()):
            return
        self._under_way = None
        if copy.copying.wait():
            self._blocked_ns += copy.copying.kept_ns()
            self._seal(copy)
        else:
            self._telling.skipped()
            self._give_up(copy.step, copy.writing)

    def leave(self) -> None:
        """The loop ends, this one at least: seal what is copied, and leave optimizers alone."""
        try:
            self.finish(wait=True)
        finally:
            self._filling.leave()

    def finish_behind(self) -> None:
        """Seal what was copied behind the last step."""
        if self._under_way is not None:
            start_ns = self.clock_ns()
            self.finish(wait=False)
            self._blocked_ns += self.clock_ns() - start_ns
            self._tell_blocked()

    def ask(self, step: int) -> None:
        """Ask whether the newest exists; at ever longer distances while it is not decided."""
        self._judge(self._verdicts.ask)
        sealed = self.newest.step if self.newest is not None else step
        is_open = bool(retention.undecided(self.shelf.known))
        self.next_question = step + max(1, step - sealed) if is_open else _NEVER

    def _is_in_turn(self, step: int, slots: int, must: bool) -> bool:
        """Whether to take it; what the others count on and is left out, they are told."""
        if self._is_cut_off:
            return False
        if self._under_way is None and not self._has_room(slots, must):
            if self._verdicts.said_ready:
                self._skip(step)
            return False
        if self.has(step):
            return False  # seen only now: what this attempt goes on from
        are_ready = self._ask_whether_all_are_ready()
        if not (are_ready or must):
            self._judge(lambda known: self._verdicts.void(known, step))
        return are_ready or must

    def _ask_whether_all_are_ready(self) -> bool:
        try:
            return self._verdicts.are_all_ready()
        except BoardLost as error:
            self._cut_off(error)
            return False

    def _has_room(self, slots: int, must: bool) -> bool:
        planned = self._filling.planned
        if self.obstacle or planned is None or not self.shelf.look(slots, planned.file_size):
            return False
        if must:
            self.shelf.await_ready()
        return self.shelf.is_ready

    def _take(self, step: int, position: Callable[[], Position]) -> None:
        self._learn()
        captured = None
        if self._under_way is None and retention.free_slots(self.shelf.known):
            captured = self._capture(step, position())
        if captured is None or not self._fits(captured):
            self._skip(step)
            return
        begun = self.shelf.begin()
        if begun is None:
            self._skip(step)
            return
        self._copy(step, captured, *begun)
        self.finish(wait=False)

    def _copy(self, step: int, captured: Captured, slot: Slot, writing: Writing) -> None:
        planned = self._filling.planned
        assert planned is not None
        copying: Copying | None = None
        try:
            may_overlap = len(self.shelf.slots) >= OVERLAPPING_SLOTS
            copying = self._filling.fill(step, captured, slot, writing, may_overlap)
            self._under_way = UnderWay(step, writing, copying, planned.data_size)
        finally:
            if copying is None:
                self._give_up(step, writing)

    def _seal(self, copy: UnderWay) -> None:
        copy.writing.seal(self.clock_ns())
        self.shelf.sealed(copy.step)
        self._skips = 0
        self.newest = Sealed(copy.step, copy.size_bytes, 0)
        self._telling.sealed(copy.step)
        if self.partner is not None and not self.partner.await_confirmed(
            copy.step, lambda: self._is_left_out(copy.step)
        ):
            self._telling.skipped()
        self.next_question = copy.step + 1
        self._judge(lambda known: self._verdicts.say_sealed(known, copy.step))

    def _is_left_out(self, step: int) -> bool:
        """Whether some rank won't have that step, or the attempt is over."""
        try:
            return self._verdicts.is_void(step)
        except BoardLost:
            return True

    def _give_up(self, step: int, writing: Writing) -> None:
        writing.let_go()
        self.shelf.given_up()
        self._judge(lambda known: self._verdicts.void(known, step))

    def _skip(self, step: int) -> None:
        """Say so at once: whoever sealed that step needs his slot."""
        if self._skips == 0:
            self._skips_since_ns = self.clock_ns()
        self._skips += 1
        self._telling.skipped()
        self._judge(lambda known: self._verdicts.void(known, step))

    def _learn(self) -> None:
        self._judge(self._verdicts.ask)
        waits = retention.undecided(self.shelf.known)
        waited_s = (self.clock_ns() - self._skips_since_ns) / 1e9
        if waits and retention.has_waited(self._skips, waited_s):
            self._skips = 0
            self._judge(lambda known: self._verdicts.void(known, waits[-1]))

    def _judge(self, ask: Callable[[Known], Known]) -> None:
        if not self._is_cut_off:
            try:
                self.shelf.known = ask(self.shelf.known)
            except BoardLost as error:
                self._cut_off(error)
        self._telling.known(self.shelf.known)

    def _cut_off(self, error: BoardLost) -> None:
        self._is_cut_off = True
        self._refuse(f"the other ranks can't be reached any more: {error}")

    def _capture(self, step: int, position: Position) -> Captured | None:
        mark = Mark(self.author.job, self.author.attempt, step, "", self.ancestors, position)
        try:
            return capture(self.savable, mark, self.place)
        except (CannotSave, CannotLayOut) as error:
            self._refuse(str(error))
            return None

    def _note_failure(self) -> None:
        self._failures += 1
        if self._failures == MOST_FAILURES:
            self._refuse(f"taking one failed {MOST_FAILURES} times")

    def _refuse(self, obstacle: str) -> None:
        self.obstacle = obstacle
        self._telling.wants(0)
        log.warning("holdfast: no snapshots on rank %d: %s", self.place.rank, obstacle)

    def _fits(self, captured: Captured) -> bool:
        """Whether it can be copied into the slots there are, by the old plan or a new one."""
        planned = self._filling.planned
        if planned is None or not planned.fits(captured.sources, len(captured.text)):
            try:
                planned = self._filling.plan(captured)
            except CannotLayOut as error:
                self._refuse(str(error))
                return False
        size = planned.file_size
        if all(slot is not None and slot.size >= size for slot in self.shelf.slots):
            return True
        self._telling.wants(planned.wanted_size)
        return False

    def _tell_blocked(self) -> None:
        """Told with the snapshot that it was for, once that is sealed."""
        newest = self.newest
        if self._under_way is not None or newest is None or newest.blocked_ns:
            return
        spent_ns, self._blocked_ns = self._blocked_ns, 0
        self.newest = replace(newest, blocked_ns=spent_ns)
        self._telling.blocked(spent_ns)
