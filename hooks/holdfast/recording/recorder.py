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
from collections.abc import Callable, Iterable
from typing import Any

from holdfast.contract import page
from holdfast.contract.page import Ending, Flag, Order, OrderKind, Phase, RecordFlag, Reply, Word
from holdfast.recording import sampling
from holdfast.recording.record_draft import (
    AFTER_PARTS,
    ALWAYS_MEASURED,
    BACKWARDS,
    COLLECTOR,
    END,
    FIRST_DEVICE,
    FIRST_PART,
    FIRST_WAIT,
    FLAGS_AT,
    GRADIENT_AT,
    LOSS_AT,
    NEW_RECORD,
    NO_MORE,
    NO_PARTS,
    OUTSIDE,
    OVERLAPPED,
    PARTS,
    PARTS_OF_A_WHOLE,
    SQUARES_AT,
    TOKENS_AT,
    cut,
)
from holdfast.recording.waiting_gradients import WaitingGradients

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
_ANATOMY_EVERY = _WORDS + Word.ANATOMY_EVERY
_BUSY_CHANGED_NS = _WORDS + Word.BUSY_CHANGED_NS
_BUSY_WITH = slice(_WORDS + Word.BUSY_WITH_1, _WORDS + Word.BUSY_WITH_1 + page.BUSY_WORDS)

_LOSS = int(RecordFlag.LOSS)
_GRADIENT = int(RecordFlag.GRADIENT)
_WAITS_SEEN = int(RecordFlag.WAITS_SEEN)
_WORK_REPORTED = int(RecordFlag.WORK_REPORTED)
_WHOLE_ONLY = int(RecordFlag.WHOLE_ONLY)
_TRACED = int(RecordFlag.TRACED)
_LARGEST_NORM = page.LARGEST_NORM
_INFINITE = float("inf")
_IDLE = Phase.IDLE

_MOST_TOKENS = 2**40
"""Of one report: more than any step has, and 16 million of them fit the word."""

_ORDER_WORDS = tuple(page.order_offset(kind) // 8 for kind in OrderKind)
_TRACE_ORDER = _ORDER_WORDS[OrderKind.TRACE]
NOT_HEARD = -1
"""No order has this number; see `Recorder.on_trace`."""

_RING_OFFSET, _RING_CAPACITY, _RECORD_SIZE = page.RING_OFFSET, page.RING_CAPACITY, page.RECORD_SIZE

_LAST_OF_A_STRETCH = sampling.STRETCH - 1

_pack_body = page.RECORD_BODY.pack
_pack_slot = struct.Struct(f"<{page.RECORD_SIZE - 4}sI").pack_into


class Recorder:
    """Writes one rank's page. Time belongs to the innermost phase, so it is counted once."""

    __slots__ = (
        "_clock",
        "_doubles",
        "_mark_us",
        "_memory",
        "_orders",
        "_passed_over",
        "_progress",
        "_published",
        "_record",
        "_scaled_step",
        "_sequences",
        "_start_goes_on",
        "_stepped",
        "_stretch_us",
        "_trace_heard",
        "_words",
        "answered",
        "attempt",
        "backwards_unseen",
        "flops_per_token",
        "gradient_is_reported",
        "gradients",
        "has_group",
        "ids_seen",
        "is_measured",
        "loop_is_wrapped",
        "loss_is_reported",
        "mark_ns",
        "on_phase",
        "on_step",
        "on_trace",
        "parameters",
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
        self.gradients = WaitingGradients()
        self.loop_is_wrapped = False
        self.loss_is_reported = False
        """Whether the script names its loss itself; what hooks see no longer counts then."""
        self.gradient_is_reported = False
        """The same for the gradient norm."""
        self._scaled_step = -1
        self._start_goes_on = True
        self._progress = 0
        self._stepped = -1
        """The progress at which an optimizer had stepped last."""
        self._published = 0
        self._record: list[Any] = list(NEW_RECORD)
        self.flops_per_token = 0.0
        """Floating-point operations of this rank, by the script's own word; 0: it says nothing."""
        self.parameters = 0
        """So many are trained; 0: not known."""
        self.ids_seen = 0
        """Token ids in the batches of the step being run."""
        self.has_group = False
        """Whether there are process groups, so that a backward pass may wait for others."""
        self.sees_waits = False
        """Whether what a backward pass waits for others can be told from its work."""
        self.backwards_unseen = 0
        """Of this step's backward passes: those of which it could not be told after all."""
        self.reducer_slot = 0
        """Whose wait it is that a backward pass ends in; see `wait_in`."""
        self.is_measured = True
        """Whether this step's parts are measured; what is not to be kept need not be taken."""
        self.on_phase: Callable[[Phase], None] | None = self._pass_over_start
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
        self._passed_over = 0
        """Steps whose numbers have one of these bits are not measured."""
        self.mark_ns = clock()
        """When the present phase was entered, or the step began in it."""
        # Microseconds of moments, not of stretches: what rounding takes from one part, the next
        # part gets, so that the parts add up.
        self._mark_us = self._stretch_us = self.mark_ns // 1000
        self._words[_PHASE_SINCE_NS] = self._words[_BOUNDARY_NS] = self.mark_ns

    def enter(self, phase: Phase) -> Phase:
        """Leave the present phase for this one; answers the phase that was left.

        In a step whose parts are not measured it is said all the same which phase this is, for
        whoever asks whether the rank hangs; since when, it is said as of the step before.
        """
        previous = self.phase
        self.phase = phase
        words = self._words
        if self.is_measured or ALWAYS_MEASURED[phase] or ALWAYS_MEASURED[previous]:
            self.mark_ns = now = self._clock()
            now_us = now // 1000
            part = PARTS[previous] if self.is_measured else PARTS_OF_A_WHOLE[previous]
            self._record[part] += now_us - self._mark_us
            self._mark_us = now_us
            words[_PHASE_SINCE_NS] = now
        words[_PHASE] = phase
        self._progress = progress = self._progress + 1
        words[_PROGRESS] = progress
        if self.on_phase is not None:
            self.on_phase(phase)
        return previous

    def end_step(self, step: int, phase: Phase | None = None) -> None:
        """Publish the record of the step that ends now; `step` steps are complete with it.

        Starting and restoring are no part of any step: the first record begins after them.
        phase: to be entered with it, which is quicker than after it; else the present one goes on.
        """
        if self.on_step is not None:
            self.on_step(step)
        self.mark_ns = now = self._clock()
        now_us = now // 1000
        record = self._record
        part = PARTS if self.is_measured else PARTS_OF_A_WHOLE
        left = _IDLE if self._progress == self._stepped else self.phase
        record[part[left]] += now_us - self._mark_us
        self._mark_us = now_us
        if not self.is_measured:
            record[FLAGS_AT] |= _WHOLE_ONLY
        elif self.sees_waits and not self.backwards_unseen:
            record[FLAGS_AT] |= _WAITS_SEEN
        record[OUTSIDE] = step
        record[END] = now
        try:
            body = _pack_body(*record)
        except (struct.error, OverflowError):
            cut(record)
            body = _pack_body(*record)
        record[OUTSIDE] = 0
        record[FIRST_PART:AFTER_PARTS] = NO_PARTS
        record[FLAGS_AT:] = NO_MORE
        self.backwards_unseen = 0
        words = self._words
        published = self._published
        start = _RING_OFFSET + published % _RING_CAPACITY * _RECORD_SIZE
        _pack_slot(self._memory, start, body, zlib.crc32(body))
        # The index comes last: a reader takes only records below it. x86-64 keeps this order;
        # elsewhere the checksum catches what overtook.
        words[_PUBLISHED] = self._published = published = published + 1
        words[_STEP] = step
        words[_BOUNDARY_NS] = now
        if phase is not None:
            self.phase = phase
            words[_PHASE_SINCE_NS] = now
            words[_PHASE] = phase
            words[_PROGRESS] = self._progress = self._progress + 1
            if self.on_phase is not None:
                self.on_phase(phase)
        if not published & _LAST_OF_A_STRETCH:
            self._sample(now_us)
        self.is_measured = not step + 1 & self._passed_over
        if words[_TRACE_ORDER] != self._trace_heard and self.on_trace is not None:
            self._trace_heard = self.on_trace(step)

    def note_stepped(self) -> None:
        """An optimizer has stepped: what lies between that and a batch, or the end of the step, is
        no forward pass, unless another part begins before."""
        self._stepped = self._progress

    def rest_until_now(self) -> None:
        """A batch is asked for."""
        if self._progress == self._stepped:
            self.phase = _IDLE

    def begin_busy(self, what: str) -> tuple[Phase, tuple[int, ...]]:
        """The script says what it does now; answers what `end_busy` is to be told. In a step that
        is no part of it, so it counts as what lies between."""
        words = self._words
        self.rest_until_now()
        before = self.phase, tuple(words[_BUSY_WITH])
        for index, word in enumerate(page.pack_busy(what), start=_BUSY_WITH.start):
            words[index] = word
        words[_BUSY_CHANGED_NS] = self._clock()
        if PARTS[self.phase] != OUTSIDE:
            self.enter(_IDLE)
        return before

    def end_busy(self, before: tuple[Phase, tuple[int, ...]]) -> None:
        """It does what it did before."""
        phase, what = before
        words = self._words
        for index, word in enumerate(what, start=_BUSY_WITH.start):
            words[index] = word
        words[_BUSY_CHANGED_NS] = self._clock()
        if PARTS[phase] != OUTSIDE:
            self.enter(phase)

    def wait_in(self, slot: int, ns: int) -> None:
        """Of the time spent communicating, this much was in the process group of this slot."""
        if 0 <= slot < page.GROUPS_TIMED and ns > 0 and self.is_measured:
            self._record[FIRST_WAIT + slot] += (ns + 500) // 1000

    def add_overlapped(self, ns: int) -> None:
        """So long communication was under way while this rank worked."""
        if ns > 0 and self.is_measured:
            self._record[OVERLAPPED] += (ns + 500) // 1000

    def add_collected(self, ns: int) -> None:
        """So long Python's garbage collector ran, in the thread that trains. Starting and restoring
        are no part of a step, and neither is this while they last."""
        if ns > 0 and PARTS[self.phase] != OUTSIDE:
            self._record[COLLECTOR] += (ns + 500) // 1000

    def add_backward(self) -> None:
        """One more backward pass."""
        self._record[BACKWARDS] += 1

    def expect_steps_of(self, owners: Iterable[Any]) -> None:
        """Optimizers, else modules, whose gradients are looked at before a boundary counts."""
        self.gradients.expect(owners)

    def gradients_wait(self, is_turn: bool = True) -> bool:
        """Whether gradients wait for their optimizer; to be asked once a turn, at its end, and as a
        loop begins."""
        return self.gradients.end_turn(is_turn)

    @property
    def backwards(self) -> int:
        """Backward passes of this step so far."""
        return int(self._record[BACKWARDS])

    def note_device(self, parts_us: tuple[int, ...], lag: int) -> None:
        """The six parts of the step `lag` steps before this one, on the device's own clock."""
        self._record[FIRST_DEVICE:TOKENS_AT] = (*(max(part, 0) for part in parts_us), lag)

    def note_work(self, tokens: int, squares: float) -> None:
        """So much more work in this step as its batches look; what the script says counts more."""
        record = self._record
        if not record[FLAGS_AT] & _WORK_REPORTED:
            record[TOKENS_AT] += tokens
            record[SQUARES_AT] += squares

    def take_ids_seen(self) -> int:
        """Token ids in the batches since the last time."""
        seen, self.ids_seen = self.ids_seen, 0
        return seen

    def note_flops_per_token(self, flops: float) -> None:
        """How many operations a token takes this rank to train on, by the script's own word."""
        self.flops_per_token = flops

    def report_work(self, tokens: float, squares: float = 0.0, step: int | None = None) -> None:
        """So many more tokens were trained on, `squares` the sum of their sequences' lengths
        squared. What is no such number counts as none; what comes late is in no record."""
        if not 0 <= tokens < _MOST_TOKENS:
            return
        words, record = self._words, self._record
        words[_TOKENS] += int(tokens)
        if step is not None and step != words[_STEP] + 1:
            return
        if not record[FLAGS_AT] & _WORK_REPORTED:
            record[FLAGS_AT] |= _WORK_REPORTED
            record[TOKENS_AT], record[SQUARES_AT] = 0, 0.0
        record[TOKENS_AT] += int(tokens)
        if 0.0 <= squares <= _LARGEST_NORM:
            record[SQUARES_AT] += squares

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
        """The step that begins is no ordinary one: a profiler has to do with it."""
        self._record[FLAGS_AT] |= _TRACED
        self.is_measured = True

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
        if flag & Flag.GROUP_INITIALISED:
            self.has_group = True

    def say(self, words: dict[str, Any]) -> None:
        """Leave last words."""
        self._write(page.LAST_WORDS_OFFSET, page.pack_last_words(words))

    def say_unrestorable(self, reasons: list[str]) -> None:
        """Say what of the state could not be restored."""
        self._write(page.UNRESTORABLE_OFFSET, page.pack_unrestorable(reasons))

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
        record = self._record
        record[LOSS_AT] = self._doubles[_LOSS_BITS] = value
        record[FLAGS_AT] |= _LOSS
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
        record = self._record
        known = record[GRADIENT_AT]
        if record[FLAGS_AT] & _GRADIENT and (norm <= known or known != known):
            return  # of several in one step the largest counts, and NaN above all
        if norm > _LARGEST_NORM:
            norm = _INFINITE
        record[GRADIENT_AT] = self._doubles[_GRADIENT_BITS] = norm
        record[FLAGS_AT] |= _GRADIENT
        words[_GRADIENT_STEP] = step

    def _pass_over_start(self, phase: Phase) -> None:
        """Told of phases until the first step is over: what is done while the rank starts or is
        restored, a barrier say, is no part of that step either."""
        if self._published:
            self.on_phase = None
        elif self._start_goes_on:
            record = self._record
            record[FIRST_PART:AFTER_PARTS] = NO_PARTS
            record[COLLECTOR:FIRST_DEVICE] = (0,) * (FIRST_DEVICE - COLLECTOR)
        self._start_goes_on = PARTS[phase] == OUTSIDE

    def _sample(self, now_us: int) -> None:
        """Decide how many of the next steps are measured, by how long the last ones took."""
        mean_us = (now_us - self._stretch_us) // sampling.STRETCH
        self._stretch_us = now_us
        every = sampling.sampled_every(mean_us, self._passed_over + 1)
        self._passed_over = every - 1
        self._words[_ANATOMY_EVERY] = every

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
