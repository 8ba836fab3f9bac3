"""The hot path: what a rank is doing, written into its page without system call, lock or growth.

It belongs to one thread, the one that trains. Claiming the page is `claim`; who calls is `patches`
(zero lines) or `loop` (three lines).
"""

from __future__ import annotations

import mmap
import struct
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

from holdfast import page
from holdfast.page import Ending, Flag, Order, OrderKind, Phase, RecordFlag, Reply, Word

_WORDS = page.WORDS_OFFSET // 8
_PUBLISHED = _WORDS + Word.PUBLISHED
_STEP = _WORDS + Word.STEP
_PHASE = _WORDS + Word.PHASE
_PHASE_SINCE_NS = _WORDS + Word.PHASE_SINCE_NS
_PROGRESS = _WORDS + Word.PROGRESS
_BOUNDARY_NS = _WORDS + Word.BOUNDARY_NS
_LOSS_BITS = _WORDS + Word.LOSS_BITS
_LOSS_STEP = _WORDS + Word.LOSS_STEP
_NONFINITE = _WORDS + Word.NONFINITE
_FLAGS = _WORDS + Word.FLAGS

_LOSS = int(RecordFlag.LOSS)
# A member looked up in its enumeration costs as much as a clock: bound once, here.
_STARTING = int(Phase.STARTING)
_RESTORING = int(Phase.RESTORING)
_DATA = int(Phase.DATA)
_FORWARD = int(Phase.FORWARD)
_BACKWARD = int(Phase.BACKWARD)
_COMMUNICATING = int(Phase.COMMUNICATING)
_OPTIMIZER = int(Phase.OPTIMIZER)
_SAVING = int(Phase.SAVING)

_ORDER_WORDS = tuple(page.order_offset(kind) // 8 for kind in OrderKind)
_RING_OFFSET, _RING_CAPACITY, _RECORD_SIZE = page.RING_OFFSET, page.RING_CAPACITY, page.RECORD_SIZE

_LONGEST_US = 2**32 - 1
"""A duration has 32 bits in the record: 71 minutes. Longer ones are cut to it."""

_NOTHING_SPENT = (0,) * len(Phase)
_pack_body = page.RECORD_BODY.pack
_pack_slot = struct.Struct(f"<{page.RECORD_SIZE - 4}sI").pack_into


class Recorder:
    """Writes one rank's page. Time belongs to the innermost phase, so it is counted once."""

    __slots__ = (
        "_boundary_ns",
        "_clock",
        "_doubles",
        "_loss",
        "_loss_flag",
        "_mark_ns",
        "_memory",
        "_orders",
        "_progress",
        "_published",
        "_sequences",
        "_spent_ns",
        "_words",
        "answered",
        "attempt",
        "loop_is_wrapped",
        "loss_is_reported",
        "phase",
        "thread",
    )

    def __init__(
        self,
        memory: mmap.mmap | bytearray,
        attempt: int,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._clock = clock
        self._map(memory)
        self.attempt = attempt
        self.phase = Phase.STARTING
        self.answered = ""
        """Identifier of the checkpoint order that was answered last."""
        self.thread = threading.get_ident()
        """Which thread trains; hooks that run in another one leave the page alone."""
        self.loop_is_wrapped = False
        self.loss_is_reported = False
        """Whether the script names its loss itself; what hooks see no longer counts then."""
        self._loss = 0.0
        self._loss_flag = 0
        self._progress = 0
        self._published = 0
        self._spent_ns = list(_NOTHING_SPENT)
        self._sequences = [0] * len(OrderKind)
        self._orders: list[Order | None] = [None] * len(OrderKind)
        self._mark_ns = self._boundary_ns = clock()
        self._words[_PHASE_SINCE_NS] = self._words[_BOUNDARY_NS] = self._mark_ns

    def enter(self, phase: Phase) -> Phase:
        """Leave the present phase for this one; answers the phase that was left."""
        now = self._clock()
        previous = self.phase
        # A plain index is what lists are quick with; `value` would be a call.
        self._spent_ns[previous._value_] += now - self._mark_ns
        self._mark_ns = now
        self.phase = phase
        self._progress = progress = self._progress + 1
        words = self._words
        words[_PHASE_SINCE_NS] = now
        words[_PHASE] = phase
        words[_PROGRESS] = progress
        return previous

    def end_step(self, step: int) -> None:
        """Publish the record of the step that ends now; `step` steps are complete with it.

        Starting and restoring are no part of any step: the first record begins after them.
        """
        now = self._clock()
        spent = self._spent_ns
        spent[self.phase._value_] += now - self._mark_ns
        body = self._pack(step, now)
        self._mark_ns = self._boundary_ns = now
        self._loss_flag = 0
        spent[:] = _NOTHING_SPENT
        words = self._words
        published = self._published
        start = _RING_OFFSET + published % _RING_CAPACITY * _RECORD_SIZE
        _pack_slot(self._memory, start, body, zlib.crc32(body))
        # The index comes last: a reader takes only records below it. x86-64 keeps this order;
        # elsewhere the checksum catches what overtook.
        words[_PUBLISHED] = self._published = published + 1
        words[_STEP] = step
        words[_BOUNDARY_NS] = now

    def report_loss(self, value: float, step: int | None = None) -> None:
        """The script's own loss. `step` as in `end_step`; by default the step being run."""
        self.loss_is_reported = True
        self._note_loss(value, step)

    def see_loss(self, value: float, step: int | None = None) -> None:
        """A loss that a hook saw; it counts until the script reports its own."""
        if not self.loss_is_reported:
            self._note_loss(value, step)

    def order(self, kind: OrderKind) -> Order | None:
        """The newest order of this kind for this attempt; the same one at every look until then.

        One that is being written now is seen at the next look.
        """
        if self._words[_ORDER_WORDS[kind]] != self._sequences[kind]:
            self._read_order(kind)
        return self._orders[kind]

    def reply(self, reply: Reply, kind: OrderKind = OrderKind.CHECKPOINT) -> None:
        """Tell the sidecar how far this rank got with an order."""
        if kind is OrderKind.CHECKPOINT:
            self.answered = reply.identifier
        self._write(page.reply_offset(kind), page.pack_reply(reply))

    def word(self, word: Word) -> int:
        """What a word holds."""
        return int(self._words[_WORDS + word])

    def set_word(self, word: Word, value: int) -> None:
        """Store a word."""
        self._words[_WORDS + word] = value

    def count(self, word: Word) -> None:
        """Add one to a word."""
        self._words[_WORDS + word] += 1

    def add_flag(self, flag: Flag) -> None:
        """State one more fact about this process."""
        self._words[_FLAGS] |= flag
        if flag & Flag.LOOP_WRAPPED:
            self.loop_is_wrapped = True

    def say(self, words: dict[str, Any]) -> None:
        """Leave last words."""
        self._write(page.LAST_WORDS_OFFSET, page.pack_last_words(words))

    def finish(self, ending: Ending) -> None:
        """Say how this process ends; what was said first holds."""
        if self.word(Word.ENDING) != Ending.RUNNING:
            return
        if ending is Ending.FINISHED:
            self.enter(Phase.FINISHED)
        self.set_word(Word.ENDING, ending)

    def detach(self) -> None:
        """Write into memory of no meaning from now on: this is a forked child, not the rank."""
        self._words.release()
        self._doubles.release()
        self._map(bytearray(page.PAGE_SIZE))

    def _map(self, memory: mmap.mmap | bytearray) -> None:
        self._memory = memory
        self._words: memoryview[int] = memoryview(memory).cast("Q")
        self._doubles: memoryview[float] = memoryview(memory).cast("d")

    def _write(self, offset: int, data: bytes) -> None:
        self._memory[offset : offset + len(data)] = data

    def _note_loss(self, value: float, step: int | None) -> None:
        self._loss = self._doubles[_LOSS_BITS] = value
        self._loss_flag = _LOSS
        words = self._words
        words[_LOSS_STEP] = words[_STEP] + 1 if step is None else step
        if value - value != 0.0:  # NaN and both infinities, and nothing else
            words[_NONFINITE] += 1

    def _pack(self, step: int, now: int) -> bytes:
        spent = self._spent_ns
        total = (now - self._boundary_ns - spent[_STARTING] - spent[_RESTORING]) // 1000
        data = spent[_DATA] // 1000
        forward = spent[_FORWARD] // 1000
        backward = spent[_BACKWARD] // 1000
        communicating = spent[_COMMUNICATING] // 1000
        optimizer = spent[_OPTIMIZER] // 1000
        saving = spent[_SAVING] // 1000
        other = total - data - forward - backward - communicating - optimizer - saving
        if total > _LONGEST_US:
            parts = (total, data, forward, backward, communicating, optimizer, saving, other)
            cut = (min(part, _LONGEST_US) for part in parts)
            return _pack_body(step, now, *cut, self._loss, self._loss_flag)
        return _pack_body(
            step,
            now,
            total,
            data,
            forward,
            backward,
            communicating,
            optimizer,
            saving,
            other,
            self._loss,
            self._loss_flag,
        )

    def _read_order(self, kind: OrderKind) -> None:
        start = page.order_offset(kind)
        slot = bytes(self._memory[start : start + page.ORDER_SIZE])
        try:
            sequence, order = page.parse_order(slot)
        except ValueError:  # a kind that this version does not know
            return
        if order is None:
            return
        self._sequences[kind] = sequence
        if order.attempt == self.attempt and order.kind == kind:
            self._orders[kind] = order
