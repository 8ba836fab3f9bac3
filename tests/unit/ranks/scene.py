"""Scenes to judge: ranks with a past, told in a few words. Times are seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.contract.page import (
    WORD_COUNT,
    Ending,
    Identity,
    Phase,
    Record,
    Reply,
    Word,
    float_bits,
    pack_busy,
)
from holdfast_sidecar.linux.syscalls import ThreadWait, Where
from holdfast_sidecar.ranks.history import (
    RESTED_LOOKS,
    CloserLook,
    Descendant,
    Inspection,
    scrutinise,
)
from holdfast_sidecar.ranks.observation import (
    PeerRank,
    ProcessLook,
    RankHistory,
    RankLook,
    Ranks,
    follow,
)
from holdfast_sidecar.records.findings import Moment


def identity(rank: int = 0, world_size: int = 2, attempt: int = 0) -> Identity:
    return Identity(1000 + rank, 77, attempt, 1, rank, rank, world_size, 0, "a", "job")


def record(step: int = 1, **milliseconds: float) -> Record:
    """A step's record, half a second after the one before; phases not named took nothing."""
    parts: dict[str, Any] = {
        f"{name}_us": int(milliseconds.get(name, 0.0) * 1000)
        for name in (
            *("data", "forward", "backward", "communicating", "optimizer", "saving", "other"),
        )
    }
    return Record(
        step=step,
        end_ns=step * 500_000_000,
        total_us=sum(parts.values()),
        loss=0.0,
        flags=0,
        **parts,
    )


def steps(count: int, **milliseconds: float) -> tuple[Record, ...]:
    return tuple(record(step, **milliseconds) for step in range(1, count + 1))


def look(
    at_s: float,
    phase: Phase = Phase.FORWARD,
    since_s: float = 0.0,
    rank: int = 0,
    step: int = 10,
    state: str = "S",
    cpu_ticks: int = 100,
    turns: int | None = 50,
    is_gone: bool = False,
    ending: Ending = Ending.RUNNING,
    records: tuple[Record, ...] = (),
    loss: float | None = None,
    world_size: int = 2,
    reply: Reply | None = None,
    busy: str = "",
) -> RankLook:
    words = [0] * WORD_COUNT
    if busy:
        words[Word.BUSY_WITH_1 : Word.BUSY_WITH_4 + 1] = pack_busy(busy)
    words[Word.STEP] = step
    words[Word.PHASE] = phase
    words[Word.BOUNDARY_NS] = words[Word.PHASE_SINCE_NS] = int(since_s * 1e9)
    words[Word.PROGRESS] = step * 7 + phase
    words[Word.ENDING] = ending
    if loss is not None:
        words[Word.LOSS_BITS], words[Word.LOSS_STEP] = float_bits(loss), step
        words[Word.NONFINITE] = int(loss != loss)
    return RankLook(
        identity=identity(rank, world_size),
        at_s=at_s,
        words=tuple(words),
        is_gone=is_gone,
        process=None if is_gone else ProcessLook(state, cpu_ticks, turns),
        records=records,
        reply=reply,
    )


def history(*looks: RankLook) -> RankHistory:
    made = None
    for one in looks:
        made = follow(made, one)
    assert made is not None
    return made


def child(
    state: str = "S",
    cpu_ticks: int = 100,
    is_worker: bool = False,
    wait: ThreadWait | None = None,
) -> Descendant:
    return Descendant(
        pid=7,
        name="python",
        state=state,
        cpu_ticks=cpu_ticks,
        is_worker=is_worker,
        transferred=5,
        wait=wait,
    )


LOCK = ThreadWait(Where.LOCK, (202, 1, 2))


def closer(
    at_s: float = 0.0,
    main: ThreadWait | None = LOCK,
    children: Sequence[Descendant] = (),
    at_work: str = "",
    mark: int = 1,
) -> CloserLook:
    return CloserLook(at_s, (0, mark, 0), main, at_work, tuple(children), transferred=5)


def scrutiny(
    main: ThreadWait | None = LOCK,
    children: Sequence[Descendant] = (),
    later: Sequence[Descendant] | None = None,
    at_work: str = "",
    looks: int = RESTED_LOOKS + 1,
) -> Inspection:
    """What looks half a second apart showed; `later`: the children at the last of them."""
    known = scrutinise(None, closer(0.0, main, children, at_work))
    for number in range(1, looks):
        seen = children if later is None or number < looks - 1 else later
        known = scrutinise(known, closer(number / 2, main, seen, at_work))
    return known


def ranks(*histories: RankHistory, peers: Sequence[PeerRank] = ()) -> Ranks:
    return Ranks(
        attempt=0,
        local={one.look.rank: one for one in histories},
        peers={peer.rank: peer for peer in peers},
    )


def moment(now_s: float, awake_since_s: float = float("-inf")) -> Moment:
    return Moment(now_s, 1_000_000.0 + now_s, "a", awake_since_s)


def peer(rank: int, phase: str = "communicating", age_s: float = 5.0) -> PeerRank:
    return PeerRank(rank, 10, phase, age_s, has_ended=False)
