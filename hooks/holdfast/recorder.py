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
_GRADIENT_BITS = _WORDS + Word.GRADIENT_BITS
_GRADIENT_STEP = _WORDS + Word.GRADIENT_STEP
_NONFINITE_GRADIENTS = _WORDS + Word.NONFINITE_GRADIENTS
_SCALER_SKIPS = _WORDS + Word.SCALER_SKIPS
_FLAGS = _WORDS + Word.FLAGS
_TOKENS = _WORDS + Word.TOKENS

_LOSS = int(RecordFlag.LOSS)
_GRADIENT = int(RecordFlag.GRADIENT)
_WAITS_SEEN = int(RecordFlag.WAITS_SEEN)
_WORK_REPORTED = int(RecordFlag.WORK_REPORTED)
_WHOLE_ONLY = int(RecordFlag.WHOLE_ONLY)
_TRACED = int(RecordFlag.TRACED)
_LARGEST_NORM = page.LARGEST_NORM
_INFINITE = float("inf")

_MOST_TOKENS = 2**40
"""Of one report: more than any step has, and 16 million of them fit the word."""

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
_TRACE_ORDER = _ORDER_WORDS[OrderKind.TRACE]
NOT_HEARD = -1
"""No order has this number; see `Recorder.on_trace`."""

_RING_OFFSET, _RING_CAPACITY, _RECORD_SIZE = page.RING_OFFSET, page.RING_CAPACITY, page.RECORD_SIZE

_LONGEST_US = 2**32 - 1
"""A duration has 32 bits in the record: 71 minutes. Longer ones are cut to it. So are counts."""

_COLLECTOR = len(Phase)
"""Where what is counted beside the phases lies among them; groups' waits follow."""
_OVERLAPPED = _COLLECTOR + 1
_FIRST_WAIT = _OVERLAPPED + 1
_NOTHING_SPENT = (0,) * (_FIRST_WAIT + page.GROUPS_TIMED)
_NO_DEVICE = (0,) * 7
"""Six parts, and that they are of no step."""
_pack_body = page.RECORD_BODY.pack
_pack_slot = struct.Struct(f"<{page.RECORD_SIZE - 4}sI").pack_into


class Recorder:
    """Writes one rank's page. Time belongs to the innermost phase, so it is counted once."""

    __slots__ = (
        "_boundary_ns",
        "_clock",
        "_device",
        "_doubles",
        "_gradient",
        "_loss",
        "_memory",
        "_news",
        "_orders",
        "_progress",
        "_published",
        "_scaled_step",
        "_sequences",
        "_spent_ns",
        "_squares",
        "_tokens",
        "_trace_heard",
        "_words",
        "answered",
        "attempt",
        "backwards",
        "backwards_unseen",
        "gradient_is_reported",
        "is_measured",
        "loop_is_wrapped",
        "loss_is_reported",
        "mark_ns",
        "on_phase",
        "on_step",
        "on_trace",
        "phase",
        "reducer_slot",
        "sees_waits",
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
        self.gradient_is_reported = False
        """The same for the gradient norm."""
        self._loss = 0.0
        self._gradient = 0.0
        self._scaled_step = -1
        self._news = 0
        """Which of them became known since the last record; see RecordFlag."""
        self._progress = 0
        self._published = 0
        self._spent_ns = list(_NOTHING_SPENT)
        self._device: tuple[int, ...] = _NO_DEVICE
        self._tokens = 0
        self._squares = 0.0
        self.backwards = 0
        """Backward passes of this step so far."""
        self.sees_waits = False
        """Whether what a backward pass waits for others can be told from its work."""
        self.backwards_unseen = 0
        """Of this step's backward passes: those of which it could not be told after all."""
        self.reducer_slot = 0
        """Whose wait it is that a backward pass ends in; see `wait_in`."""
        self.is_measured = True
        """Whether this step's parts are measured; what is not to be kept need not be taken."""
        self.on_phase: Callable[[Phase], None] | None = None
        """Told of every phase that is entered, for a clock of the device's; must not raise."""
        self.on_step: Callable[[int], None] | None = None
        """Told of every step that ends, before its record is made, so that it may still call
        `note_device`; must not raise."""
        self.on_trace: Callable[[int], int] | None = None
        """Told of a step that has ended while an order to trace is new: answers `heard` of it, or
        NOT_HEARD to be told of the next one too; must not raise."""
        self._trace_heard = 0
        self._sequences = [0] * len(OrderKind)
        self._orders: list[Order | None] = [None] * len(OrderKind)
        self.mark_ns = self._boundary_ns = clock()
        """When the present phase was entered, or the step began in it."""
        self._words[_PHASE_SINCE_NS] = self._words[_BOUNDARY_NS] = self.mark_ns

    def enter(self, phase: Phase) -> Phase:
        """Leave the present phase for this one; answers the phase that was left."""
        now = self._clock()
        previous = self.phase
        self._spent_ns[previous] += now - self.mark_ns
        self.mark_ns = now
        self.phase = phase
        self._progress = progress = self._progress + 1
        words = self._words
        words[_PHASE_SINCE_NS] = now
        words[_PHASE] = phase
        words[_PROGRESS] = progress
        if self.on_phase is not None:
            self.on_phase(phase)
        return previous

    def end_step(self, step: int) -> None:
        """Publish the record of the step that ends now; `step` steps are complete with it.

        Starting and restoring are no part of any step: the first record begins after them.
        """
        if self.on_step is not None:
            self.on_step(step)
        now = self._clock()
        spent = self._spent_ns
        spent[self.phase] += now - self.mark_ns
        body = self._pack(step, now, spent)
        self.mark_ns = self._boundary_ns = now
        self._news = self._tokens = self.backwards = self.backwards_unseen = 0
        self._squares = 0.0
        self._device = _NO_DEVICE
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
        if words[_TRACE_ORDER] != self._trace_heard and self.on_trace is not None:
            self._trace_heard = self.on_trace(step)

    def wait_in(self, slot: int, ns: int) -> None:
        """Of the time spent communicating, this much was in the process group of this slot."""
        if 0 <= slot < page.GROUPS_TIMED:
            self._spent_ns[_FIRST_WAIT + slot] += ns

    def add_overlapped(self, ns: int) -> None:
        """So long communication was under way while this rank worked."""
        self._spent_ns[_OVERLAPPED] += ns

    def add_collected(self, ns: int) -> None:
        """So long Python's garbage collector ran, in the thread that trains."""
        self._spent_ns[_COLLECTOR] += ns

    def note_device(self, parts_us: tuple[int, ...], lag: int) -> None:
        """The six parts of the step `lag` steps before this one, on the device's own clock."""
        self._device = (*(min(max(part, 0), _LONGEST_US) for part in parts_us), lag)

    def note_work(self, tokens: int, squares: float) -> None:
        """So much more work in this step as its batches look; what the script says counts more."""
        if not self._news & _WORK_REPORTED:
            self._tokens += tokens
            self._squares += squares

    def report_work(self, tokens: float, squares: float = 0.0, step: int | None = None) -> None:
        """So many more tokens were trained on, `squares` the sum of their sequences' lengths
        squared. What is no such number counts as none; what comes late is in no record."""
        if not 0 <= tokens < _MOST_TOKENS:
            return
        words = self._words
        words[_TOKENS] += int(tokens)
        if step is not None and step != words[_STEP] + 1:
            return
        if not self._news & _WORK_REPORTED:
            self._news |= _WORK_REPORTED
            self._tokens, self._squares = 0, 0.0
        self._tokens += int(tokens)
        if 0.0 <= squares <= _LARGEST_NORM:
            self._squares += squares

    def report_loss(self, value: float, step: int | None = None) -> None:
        """The script's own loss. `step` as in `end_step`; by default the step being run."""
        self.loss_is_reported = True
        self.note_loss(value, step)

    def report_gradient(self, norm: float, step: int | None = None) -> None:
        """The script's own norm of its gradients."""
        self.gradient_is_reported = True
        self.note_gradient(norm, step)

    def scale(self) -> None:
        """The loss of the step being run was scaled: should its gradients overflow, the scaler
        passes over the step, and nothing is wrong."""
        self._scaled_step = self._words[_STEP] + 1

    def order(self, kind: OrderKind) -> Order | None:
        """The newest order of this kind for this attempt; the same one at every look until then.

        One that is being written now is seen at the next look.
        """
        if self._words[_ORDER_WORDS[kind]] != self._sequences[kind]:
            self._read_order(kind)
        return self._orders[kind]

    def heard(self, kind: OrderKind) -> int:
        """Which writing of this kind of order `order` has read; it grows with each."""
        return self._sequences[kind]

    def note_trace(self) -> None:
        """The step that is run is no ordinary one: a profiler has to do with it."""
        self._news |= _TRACED

    def newest_record(self) -> page.Record | None:
        """The record of the step that ended last; None before there is one."""
        index = (self._published - 1) % _RING_CAPACITY
        start = _RING_OFFSET + index * _RECORD_SIZE
        return page.parse_record(bytes(self._memory[start : start + _RECORD_SIZE]))

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
        self.count_at(_WORDS + word)

    def count_at(self, index: int) -> None:
        """The same by the word's index in the page, for the hot path: see `index_of`."""
        words = self._words
        words[index] = words[index] + 1

    @staticmethod
    def index_of(word: Word) -> int:
        """Where a word lies, counted in words."""
        return _WORDS + int(word)

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

    def note_loss(self, value: float, step: int | None = None) -> None:
        """A loss, whoever saw it. Hooks ask `loss_is_reported` first."""
        self._loss = self._doubles[_LOSS_BITS] = value
        self._news |= _LOSS
        words = self._words
        words[_LOSS_STEP] = words[_STEP] + 1 if step is None else step
        if value - value != 0.0:  # NaN and both infinities, and nothing else
            words[_NONFINITE] += 1

    def note_gradient(self, norm: float, step: int | None = None) -> None:
        """A gradient norm, whoever worked it out. Hooks ask `gradient_is_reported` first."""
        words = self._words
        if step is None:
            step = words[_STEP] + 1
        if norm - norm == 0.0:
            words[_SCALER_SKIPS] = 0
        elif step <= self._scaled_step:  # one from a GPU comes later than its step
            words[_SCALER_SKIPS] += 1
            return
        else:
            words[_NONFINITE_GRADIENTS] += 1
        known = self._gradient
        if self._news & _GRADIENT and (norm <= known or known != known):
            return  # of several in one step the largest counts, and NaN above all
        if norm > _LARGEST_NORM:
            norm = _INFINITE
        self._gradient = self._doubles[_GRADIENT_BITS] = norm
        self._news |= _GRADIENT
        words[_GRADIENT_STEP] = step

    def _pack(self, step: int, now: int, spent: list[int]) -> bytes:
        # Unpacked at once, which is quicker than ten look-ups; in the order of `Phase`.
        (
            starting,
            restoring,
            compiling,
            data,
            forward,
            backward,
            waiting,
            optimizer,
            saving,
            evaluating,
            _,
            _,
            transfer,
            collector,
            overlapped,
            wait_1,
            wait_2,
            wait_3,
            wait_4,
        ) = spent
        total = (now - self._boundary_ns - starting - restoring) // 1000
        compiling //= 1000
        data //= 1000
        forward //= 1000
        backward //= 1000
        waiting //= 1000
        optimizer //= 1000
        saving //= 1000
        evaluating //= 1000
        transfer //= 1000
        parts: tuple[int, ...] = (
            data,
            forward,
            backward,
            waiting,
            optimizer,
            saving,
            total
            - data
            - forward
            - backward
            - waiting
            - optimizer
            - saving
            - transfer
            - evaluating
            - compiling,
            transfer,
            evaluating,
            compiling,
        )
        flags = self._news
        if self.sees_waits and not self.backwards_unseen:
            flags |= _WAITS_SEEN
        rest: tuple[int, ...] = (
            collector // 1000,
            overlapped // 1000,
            wait_1 // 1000,
            wait_2 // 1000,
            wait_3 // 1000,
            wait_4 // 1000,
        )
        if total > _LONGEST_US:
            parts = tuple(min(part, _LONGEST_US) for part in parts)
            rest = tuple(min(part, _LONGEST_US) for part in rest)
        return _pack_body(
            step,
            now,
            *parts,
            self._loss,
            self._gradient,
            flags,
            *rest,
            *self._device,
            min(self._tokens, _LONGEST_US),
            min(self._squares, _LARGEST_NORM),
            self.backwards,
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
