"""Layout of the rank page: one file of shared memory per rank, written by its hooks.

The hooks write words, records, replies and last words; the sidecar reads them with pread and
writes orders into the same page. This file packs and parses, and touches neither file nor clock.
Layout (bytes, little endian), page size 45,056:

    0     identity   magic, version, who this is, checksum; written once, before the rename
    512   words      64 unsigned 64-bit words, each stored at once
    1024  orders     one slot of 128 bytes per kind of order; its first word is a sequence number
    2048  replies    one slot of 128 bytes per kind of order that is answered
    3072  death      the mutex that the rank's main thread holds for life; see DEATH_WATCH
    4096  last words what an exception said, as JSON
    6144  state      what of it could not be restored, as JSON; see pack_unrestorable
    8192  ring       256 records of 144 bytes; the word PUBLISHED counts them
"""

from __future__ import annotations

import json
import signal
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Any

MAGIC = b"HOLDFAST"
VERSION = 5
PAGE_SIZE = 45_056

STACKS_SIGNAL = signal.SIGRTMIN + 12
"""Asks a rank for its stacks. Not SIGUSR1 or SIGUSR2: with those schedulers ask scripts to save and
requeue, and one whose handler replaced ours would do so. Libraries use the ends of this range."""


END_SIGNAL = signal.SIGRTMIN + 11
"""Ends a rank that holds SIGTERM (see Flag), at once and in the middle of C code, as SIGTERM ends
any other: nobody handles it, so the kernel does what it does by default."""


class Phase(IntEnum):
    """What a rank is doing. The numbers are part of the layout."""

    STARTING = 0
    RESTORING = 1
    COMPILING = 2
    DATA = 3
    FORWARD = 4
    BACKWARD = 5
    COMMUNICATING = 6
    OPTIMIZER = 7
    SAVING = 8
    EVALUATING = 9
    IDLE = 10
    FINISHED = 11
    TRANSFERRING = 12  # a batch goes from the host to the device


class Word(IntEnum):
    """Index of each word; a word is stored by one aligned 8-byte store."""

    PUBLISHED = 0  # records published so far
    STEP = 1  # steps completed (see `step` in the glossary)
    PHASE = 2
    PHASE_SINCE_NS = 3  # CLOCK_MONOTONIC
    PROGRESS = 4  # grows at every change of phase
    COLLECTIVES_ENTERED = 5
    COLLECTIVES_LEFT = 6
    OPTIMIZER_CALLS = 7
    BOUNDARY_NS = 8  # CLOCK_MONOTONIC at the newest step boundary
    LOSS_BITS = 9  # float64 of the newest reported loss
    NONFINITE = 10  # NaN or Inf seen in losses so far
    ENDING = 11  # see Ending
    HOOK_ERRORS = 12
    FLAGS = 13  # see Flag
    RESUMED_STEP = 14  # step this attempt resumed from; 0 = from nothing
    RESUME_FAILURES = 15  # bit i: candidate i of HOLDFAST_RESUME did not load, a later one did
    LOSS_STEP = 16  # step at which LOSS_BITS was reported
    SNAPSHOT_WANTED = 17  # bytes of the slot file this rank needs; 0: it takes no snapshots (yet)
    SNAPSHOT_SEALED = 18  # step + 1 of the newest snapshot this rank sealed
    SNAPSHOT_EXISTING = 19  # step + 1 of the newest snapshot that this rank knows all ranks sealed
    SNAPSHOTS_TAKEN = 20
    SNAPSHOTS_SKIPPED = 21  # no slot was free
    SNAPSHOT_BLOCKED_NS = 22  # the loop was kept this long by snapshots, in all
    SNAPSHOT_LAST_NS = 23  # and by the newest one
    SNAPSHOT_FIRST_NS = 24  # and by the first one
    TERMINATION_NS = 25  # CLOCK_MONOTONIC at which this rank was sent SIGTERM; 0: it was not
    SNAPSHOT_SETTLED = 26  # step + 1; of this rank's steps up to it only the existing one exists
    GRADIENT_BITS = 27  # float64 of the newest gradient norm, unless a loss scaler passed it over
    GRADIENT_STEP = 28  # step at which GRADIENT_BITS was reported
    NONFINITE_GRADIENTS = 29  # gradient norms so far that were NaN or Inf; passed over ones apart
    SCALER_SKIPS = 30  # steps in a row that a loss scaler passed over; 0: the newest it did not
    DEATH_WATCH = 31  # 1: the main thread holds the mutex at DEATH_OFFSET; whoever gets it, knows
    TOKENS = 32  # tokens that the script said it trained on, in this attempt
    MODEL_FLOPS = 33  # float64: of one step of this rank; 0: not known yet
    HARDWARE_FLOPS = (
        34  # float64: the same with what activation checkpointing computes again; 0: unknown
    )
    PEAK_FLOPS = 35  # float64: a second, of this rank's device at best; 0: not known
    MEMORY_ALLOCATED = 36  # bytes of this rank's device that tensors hold; 0: it has none
    MEMORY_RESERVED = 37  # bytes that torch's allocator holds, tensors included
    MEMORY_PEAK = 38  # the most that was reserved in this attempt
    MEMORY_TOTAL = 39  # bytes that the device has
    MEMORY_RETRIES = 40  # times the allocator had to give back what it kept before it found room
    COLLECTIVES_1 = 41  # collectives and messages of the first process group; the next three follow
    COLLECTIVES_2 = 42
    COLLECTIVES_3 = 43
    COLLECTIVES_4 = 44
    SENT_BYTES_1 = 45  # bytes of this rank's own tensors in them, as far as they were seen
    SENT_BYTES_2 = 46
    SENT_BYTES_3 = 47
    SENT_BYTES_4 = 48
    ANATOMY_EVERY = 49  # the parts of every so manyth step are measured; 0 reads as 1: of all
    BUSY_CHANGED_NS = (
        50  # CLOCK_MONOTONIC at which the script last said that it is busy, or no more
    )
    BUSY_WITH_1 = 51  # what with, UTF-8 in this and the next three; 0: with nothing
    BUSY_WITH_2 = 52
    BUSY_WITH_3 = 53
    BUSY_WITH_4 = 54


class Flag(IntFlag):
    """Facts about the process that the sidecar or the launcher wants to know."""

    TORCH_IMPORTED = 1
    DYNAMO_IMPORTED = 2
    STATE_REGISTERED = 4
    GROUP_INITIALISED = 8
    LOOP_WRAPPED = 16
    NEEDS_COLD_START = 32  # it set variables that torch reads when it is loaded
    HOLDS_TERMINATION = 64  # it survives SIGTERM; END_SIGNAL ends it
    OTHER_BACKEND = 128  # of its process groups some use another backend than gloo
    NO_ROOM_FOR_RECORDER = 256  # too few threads may be started: its flight recorder can't be asked


class RecordFlag(IntFlag):
    """What to know about one record."""

    LOSS = 1  # a loss became known during this step; without it `loss` is an older one, or 0
    GRADIENT = 2  # so did a gradient norm; without it `gradient_norm` is an older one, or 0
    WAITS_SEEN = 4  # what the backward pass waited for others counts as communicating, not backward
    WORK_REPORTED = 8  # tokens and squares are the script's own word; without it: seen in its batch
    WHOLE_ONLY = 16  # the parts were not measured: all of the step is in `other_us`
    TRACED = 32  # a profiler recorded it on request, or was made ready, which takes its time


class Ending(IntEnum):
    """How the process said it would end; RUNNING when it said nothing."""

    RUNNING = 0
    FINISHED = 1
    EXCEPTION = 2


class OrderKind(IntEnum):
    """What a sidecar may ask of a rank; the number is the slot."""

    CHECKPOINT = 0  # save at `step`; with `slots` > 0 by a snapshot that is held, else by itself
    STOP = 1
    SNAPSHOT = 2  # take one every `every` steps (0: none), into `slots` slots
    PEER = 3  # take one at `step` and hold it, for another node to copy; hold `keeps` besides
    CONFIRMED = 4  # the snapshot of `step` is on another node too; withdrawn: it won't be, go on
    TRACE = 5  # profile `every` steps from `step` on, into a file named by the identifier


class ReplyState(IntEnum):
    """How far a rank got with a checkpoint order."""

    NONE = 0
    ARMED = 1  # will save when it reaches the step
    MISSED = 2  # was already past the step
    SAVING = 3  # all ranks arrived: saving
    SAVED = 4
    VOID = 5  # not all ranks arrived in time, or the order was withdrawn
    FAILED = 6
    COPIED = 7  # the snapshot of that step is sealed and held until the order is withdrawn
    LEFT = 8  # its loop ended before the step


WORDS_OFFSET = 512
WORD_COUNT = 64
ORDERS_OFFSET = 1024
ORDER_SIZE = 128
REPLIES_OFFSET = 2048
REPLY_SIZE = 128
DEATH_OFFSET = 3072
DEATH_SIZE = 64
"""Room for a pthread_mutex_t of glibc: 40 bytes on x86-64, 48 on aarch64."""
LAST_WORDS_OFFSET = 4096
LAST_WORDS_SIZE = 2048
UNRESTORABLE_OFFSET = 6144
UNRESTORABLE_SIZE = 2048
RING_OFFSET = 8192
RECORD_SIZE = 144
RING_CAPACITY = (PAGE_SIZE - RING_OFFSET) // RECORD_SIZE

_IDENTITY = struct.Struct("<8sQQQQQQQQQ64s128s")
_MAGIC_AND_VERSION = struct.Struct("<8sQ")
_WORDS = struct.Struct(f"<{WORD_COUNT}Q")
_ORDER_BODY = struct.Struct("<QQQQQQQQ48s")
"""kind, attempt, epoch, step, deadline_ns, every, slots, keeps, identifier"""
_ORDER = struct.Struct("<Q I 4x 112s")
_REPLY_BODY = struct.Struct("<QQQQ48s")  # state, step, bytes, duration_ns, identifier
GROUPS_TIMED = 4
"""So many of a rank's process groups, in the order in which they were made, are timed apart."""
RECORD_BODY = struct.Struct("<QQ 10I dfI 2I 4I 6I I If I 4x")
"""A record without its checksum; public because the hot path packs it without a `Record`.

step, end_ns, the ten parts of the step (their sum is its total), loss, gradient norm, flags,
garbage collector, overlapped, waits of four groups, six parts on the device, their lag, tokens,
squares, backward passes.
"""
LARGEST_NORM = 3.4e38
"""The largest number that the 32 bits of a gradient norm hold, or nearly; beyond is infinite."""
_CHECKSUM = struct.Struct("<I")
_LENGTH_AND_CHECKSUM = struct.Struct("<II")


@dataclass(frozen=True)
class Identity:
    """Who wrote a page. Times are CLOCK_MONOTONIC nanoseconds."""

    pid: int
    start_ticks: int
    attempt: int
    epoch: int
    rank: int
    local_rank: int
    world_size: int
    claimed_ns: int
    node: str
    job: str


def pack_identity(identity: Identity) -> bytes:
    """Pack the identity zone, checksum last."""
    body = _IDENTITY.pack(
        MAGIC,
        VERSION,
        identity.pid,
        identity.start_ticks,
        identity.attempt,
        identity.epoch,
        identity.rank,
        identity.local_rank,
        identity.world_size,
        identity.claimed_ns,
        identity.node.encode()[:64],
        identity.job.encode()[:128],
    )
    return body + _CHECKSUM.pack(zlib.crc32(body))


def parse_identity_zone(page: bytes) -> Identity | None:
    """Parse the identity zone; None when it is no page, torn, or of another version."""
    body = page[: _IDENTITY.size]
    tail = page[_IDENTITY.size : _IDENTITY.size + 4]
    if len(tail) < 4 or _CHECKSUM.unpack(tail)[0] != zlib.crc32(body):
        return None
    magic, version, *numbers, node, job = _IDENTITY.unpack(body)
    if magic != MAGIC or version != VERSION:
        return None
    return Identity(*[*numbers, _text(node), _text(job)])


def foreign_version(page: bytes) -> int | None:
    """The version of a page that another Holdfast laid out, by its first bytes, which are the same
    in all; None: it is ours, or no page."""
    if len(page) < _MAGIC_AND_VERSION.size:
        return None
    magic, version = _MAGIC_AND_VERSION.unpack_from(page)
    return int(version) if magic == MAGIC and version not in (0, VERSION) else None


def parse_words(page: bytes) -> tuple[int, ...]:
    """All words of a page, to be indexed by `Word`."""
    return _WORDS.unpack_from(page, WORDS_OFFSET)


def uses_gloo_alone(words: tuple[int, ...]) -> bool:
    """Whether the rank has process groups, and gloo is all that they use."""
    in_question = words[Word.FLAGS] & (Flag.GROUP_INITIALISED | Flag.OTHER_BACKEND)
    return in_question == Flag.GROUP_INITIALISED


BUSY_WORDS = 4
_BUSY = struct.Struct(f"<{BUSY_WORDS}Q")


def pack_busy(what: str) -> tuple[int, ...]:
    """The words from BUSY_WITH_1 on; what is longer than they are is cut."""
    text = what.replace("\0", " ").strip().encode(errors="replace") or b"busy"
    return _BUSY.unpack(text[: _BUSY.size].ljust(_BUSY.size, b"\0"))


def parse_busy(words: tuple[int, ...]) -> str:
    """What the script says that it is busy with, as one line of text; empty: with nothing."""
    first = Word.BUSY_WITH_1
    if not words[first]:
        return ""
    text = _BUSY.pack(*words[first : first + BUSY_WORDS]).rstrip(b"\0").decode(errors="ignore")
    return "".join(one if one.isprintable() else "?" for one in text) or "busy"


def float_bits(value: float) -> int:
    """The bits of a float64 as an unsigned word."""
    return int(struct.unpack("<Q", struct.pack("<d", value))[0])


def bits_float(bits: int) -> float:
    """The float64 whose bits are this word."""
    return float(struct.unpack("<d", struct.pack("<Q", bits))[0])


@dataclass(frozen=True)
class Record:
    """One step of one rank. Durations are microseconds, `end_ns` is CLOCK_MONOTONIC.

    The total is the sum of the ten parts, so the page does not hold it: data, forward, backward,
    communicating, optimizer, saving, other, transfer, evaluating, compiling.
    """

    step: int
    end_ns: int
    total_us: int
    data_us: int
    forward_us: int
    backward_us: int
    communicating_us: int
    """What the rank stood waiting in: exposed communication."""
    optimizer_us: int
    saving_us: int
    other_us: int
    loss: float
    flags: int = 0
    """See RecordFlag."""
    gradient_norm: float = 0.0
    transfer_us: int = 0
    """From the host to the device, as far as the host was kept by it."""
    evaluating_us: int = 0
    compiling_us: int = 0
    collector_us: int = 0
    """Of the parts, whichever it struck: Python's garbage collector."""
    overlapped_us: int = 0
    """Communication that was under way while the rank worked, as far as it was seen."""
    waits_us: tuple[int, ...] = (0,) * GROUPS_TIMED
    """Of communicating: in each of the first process groups."""
    device_us: tuple[int, ...] = (0,) * 6
    """On the device's own clock, of the step `device_lag` steps before this one: transfer, forward,
    backward, communicating (exposed), optimizer, other."""
    device_lag: int = 0
    """0: no time of a device became known during this step."""
    tokens: int = 0
    """Work of the step: tokens, or elements of its batch where the script says nothing."""
    squares: float = 0.0
    """Likewise: sum of the squares of the sequences' lengths."""
    backwards: int = 0
    """Backward passes: more than one with gradient accumulation or micro-batches."""


def pack_record(record: Record) -> bytes:
    """Pack a record, checksum last (the hot path packs the same struct in place)."""
    body = RECORD_BODY.pack(
        record.step,
        record.end_ns,
        record.data_us,
        record.forward_us,
        record.backward_us,
        record.communicating_us,
        record.optimizer_us,
        record.saving_us,
        record.other_us,
        record.transfer_us,
        record.evaluating_us,
        record.compiling_us,
        record.loss,
        record.gradient_norm,
        record.flags,
        record.collector_us,
        record.overlapped_us,
        *record.waits_us,
        *record.device_us,
        record.device_lag,
        record.tokens,
        record.squares,
        record.backwards,
    )
    return body + _CHECKSUM.pack(zlib.crc32(body))


def parse_record(data: bytes) -> Record | None:
    """Parse a slot of the ring; None when torn."""
    body = data[: RECORD_BODY.size]
    if _CHECKSUM.unpack_from(data, RECORD_BODY.size)[0] != zlib.crc32(body):
        return None
    fields = RECORD_BODY.unpack(body)
    fetching, forward, backward, waiting, optimizer, saving, other, *rare = fields[2:12]
    loss, gradient_norm, flags, collector, overlapped = fields[12:17]
    return Record(
        step=fields[0],
        end_ns=fields[1],
        total_us=sum(fields[2:12]),
        data_us=fetching,
        forward_us=forward,
        backward_us=backward,
        communicating_us=waiting,
        optimizer_us=optimizer,
        saving_us=saving,
        other_us=other,
        transfer_us=rare[0],
        evaluating_us=rare[1],
        compiling_us=rare[2],
        loss=loss,
        gradient_norm=gradient_norm,
        flags=flags,
        collector_us=collector,
        overlapped_us=overlapped,
        waits_us=fields[17:21],
        device_us=fields[21:27],
        device_lag=fields[27],
        tokens=fields[28],
        squares=fields[29],
        backwards=fields[30],
    )


def parse_records(page: bytes, after: int) -> Iterator[tuple[int, Record]]:
    """Records published after index `after`, as far as the ring still holds them.

    Torn records are left out. The caller re-reads PUBLISHED afterwards and drops what was lapped.
    """
    published = parse_words(page)[Word.PUBLISHED]
    for index in range(max(after, published - RING_CAPACITY), published):
        start = RING_OFFSET + index % RING_CAPACITY * RECORD_SIZE
        record = parse_record(page[start : start + RECORD_SIZE])
        if record is not None:
            yield index, record


@dataclass(frozen=True)
class Order:
    """What the sidecar asks of its rank; refused unless it carries this attempt.

    `deadline_ns` is CLOCK_MONOTONIC (same node, same clock); 0: the order is withdrawn.
    """

    kind: OrderKind
    attempt: int
    epoch: int
    step: int
    deadline_ns: int
    identifier: str
    every: int = 0
    slots: int = 0
    keeps: int = 0
    """Step + 1 of another snapshot that stays held, also once this order is withdrawn; 0: none."""

    @property
    def is_withdrawn(self) -> bool:
        """Whether it says that the order of this identifier no longer stands."""
        return self.deadline_ns == 0


def order_offset(kind: OrderKind) -> int:
    """Where the slot of this kind of order lies."""
    return ORDERS_OFFSET + int(kind) * ORDER_SIZE


def pack_order(order: Order, sequence: int) -> tuple[bytes, bytes]:
    """The slot's body (to be written first, at offset + 8) and its sequence word (at offset)."""
    body = _ORDER_BODY.pack(
        order.kind,
        order.attempt,
        order.epoch,
        order.step,
        order.deadline_ns,
        order.every,
        order.slots,
        order.keeps,
        order.identifier.encode()[:48],
    )
    whole = _ORDER.pack(sequence, zlib.crc32(body), body)
    return whole[8:], whole[:8]


def parse_order(slot: bytes) -> tuple[int, Order | None]:
    """Sequence number and order of a slot; no order when none was written or it is torn."""
    sequence, checksum, body = _ORDER.unpack_from(slot)
    if sequence == 0 or zlib.crc32(body) != checksum:
        return sequence, None
    kind, attempt, epoch, step, deadline_ns, every, slots, keeps, name = _ORDER_BODY.unpack(body)
    order = Order(
        OrderKind(kind), attempt, epoch, step, deadline_ns, _text(name), every, slots, keeps
    )
    return sequence, order


@dataclass(frozen=True)
class Reply:
    """How far this rank got with the order `identifier`."""

    state: ReplyState
    step: int
    """The ordered one; of what was saved or copied: the boundary where it was, the first one from
    there on."""
    size_bytes: int
    duration_ns: int
    identifier: str


def pack_reply(reply: Reply) -> bytes:
    """Pack a reply, checksum last."""
    body = _REPLY_BODY.pack(
        reply.state, reply.step, reply.size_bytes, reply.duration_ns, reply.identifier.encode()[:48]
    )
    return body + _CHECKSUM.pack(zlib.crc32(body))


def reply_offset(kind: OrderKind) -> int:
    """Where the reply to orders of this kind lies."""
    return REPLIES_OFFSET + int(kind) * REPLY_SIZE


def parse_reply(page: bytes, kind: OrderKind = OrderKind.CHECKPOINT) -> Reply | None:
    """The rank's newest reply to this kind of order; None when there is none yet or it is torn."""
    start = reply_offset(kind)
    body = page[start : start + _REPLY_BODY.size]
    checksum = _CHECKSUM.unpack_from(page, start + _REPLY_BODY.size)[0]
    if checksum != zlib.crc32(body):
        return None
    state, step, size_bytes, duration_ns, identifier = _REPLY_BODY.unpack(body)
    if state == ReplyState.NONE:
        return None
    return Reply(ReplyState(state), step, size_bytes, duration_ns, _text(identifier))


def pack_last_words(words: dict[str, Any]) -> bytes:
    """Pack last words; long values are cut so that the whole always fits."""
    room = LAST_WORDS_SIZE - _LENGTH_AND_CHECKSUM.size
    text = json.dumps(words).encode()
    for limit in (1024, 512, 256, 64, 16):  # JSON may spell a character with twelve
        if len(text) <= room:
            break
        cut = {key: str(value)[-limit:] for key, value in words.items()}
        text = json.dumps(cut).encode()
    return _pack_text(text[:room])


def parse_last_words(page: bytes) -> dict[str, Any] | None:
    """What an exception said; None when nothing was said or it is torn."""
    words = _parse_text(page, LAST_WORDS_OFFSET, LAST_WORDS_SIZE)
    return words if isinstance(words, dict) else None


def pack_unrestorable(reasons: list[str]) -> bytes:
    """Pack what of a rank's state could not be restored, in sentences; the last ones are left out
    where they don't fit."""
    room = UNRESTORABLE_SIZE - _LENGTH_AND_CHECKSUM.size
    lines = (" ".join(reason.split())[:LONGEST_REASON] for reason in reasons)
    kept = ["".join(letter for letter in line if letter.isprintable()) for line in lines]
    while len(text := json.dumps(kept, ensure_ascii=False).encode()) > room:
        kept = kept[:-1]
    return _pack_text(text)


LONGEST_REASON = 400
"""Characters, of which JSON may spell each with four bytes: one always fits."""


def parse_unrestorable(page: bytes) -> tuple[str, ...]:
    """What of this rank's state could not be restored; empty when nothing was said."""
    reasons = _parse_text(page, UNRESTORABLE_OFFSET, UNRESTORABLE_SIZE)
    return tuple(map(str, reasons)) if isinstance(reasons, list) else ()


def _pack_text(text: bytes) -> bytes:
    return _LENGTH_AND_CHECKSUM.pack(len(text), zlib.crc32(text)) + text


def _parse_text(page: bytes, offset: int, size: int) -> Any:
    length, checksum = _LENGTH_AND_CHECKSUM.unpack_from(page, offset)
    start = offset + _LENGTH_AND_CHECKSUM.size
    text = page[start : start + length]
    if length == 0 or start + length > offset + size or zlib.crc32(text) != checksum:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def page_name(attempt: int, local_rank: int) -> str:
    """File name of a rank's page inside its node's directory."""
    return f"attempt-{attempt}-local-{local_rank}.page"


SOCKET_SUFFIX = ".socket"
"""Beside a page, in place of its own suffix: where torch's worker server answers for the rank."""

GROUPS_SUFFIX = ".groups"
"""Likewise: JSON, name of each process group it is in -> `title`, `ranks`, `digest` of them, and
`slot` where it is one of those that are timed apart, else null."""

LAYOUT_SUFFIX = ".layout"
"""Likewise: JSON, where it stands in the parallel layout: `dims`, `shape` and `coordinate` of the
largest named device mesh, `stage`, `stages` and `micro_batches` of a pipeline, `role` in the user's
own word; `messages`, with whom it exchanges some in each step."""

FIRST = -1
"""In a layout's `messages` (`after` whom it hears first in each step, `with` whom it exchanges
them), instead of a rank: it begins by sending, as a pipeline's first stage does."""

UNCLEAR = -2
"""It begins with messages in both directions, or not always alike."""

DEVICES_SUFFIX = ".devices"
"""Likewise: JSON, the GPUs that hold what its optimizer steps, and which process says so."""


TRACED_PARTS = (
    "data",
    "transfer",
    "forward",
    "backward",
    "communicating",
    "optimizer",
    "evaluating",
    "compiling",
    "other",
)
"""Of a traced step, in its order; without saving, as which the price of the trace counts."""


def checkpoint_name(step: int, identifier: str) -> str:
    """Directory name of a checkpoint below the checkpoint directory; both packages use it."""
    return f"step-{step:08d}-{identifier}"


TRACES = "traces"
"""Folder beside a rank's stack dumps: in it one per trace order, named by its identifier."""


def trace_name(rank: int) -> str:
    """File name of a rank's trace: a chrome trace, packed by gzip."""
    return f"rank-{rank}.json.gz"


def trace_facts_name(rank: int) -> str:
    """File name of what a rank says beside it: JSON, `parts_us` of the mean step, or `error`."""
    return f"rank-{rank}.facts.json"


def _text(field: bytes) -> str:
    return field.rstrip(b"\0").decode(errors="replace")
