"""Scenes to judge: ranks with a past, told in a few words. Times are seconds."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.page import WORD_COUNT, Ending, Identity, Phase, Record, Reply, Word, float_bits
from holdfast_sidecar.observation import (
    Moment,
    PeerRank,
    ProcessLook,
    RankHistory,
    RankLook,
    Ranks,
    follow,
)


def identity(rank: int = 0, world_size: int = 2, attempt: int = 0) -> Identity:
    return Identity(1000 + rank, 77, attempt, 1, rank, rank, world_size, 0, "a", "job")


def record(step: int = 1, **milliseconds: float) -> Record:
    """A step's record, half a second after the one before; phases not named took nothing."""
    parts = {
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
) -> RankLook:
    words = [0] * WORD_COUNT
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


def ranks(*histories: RankHistory, peers: Sequence[PeerRank] = ()) -> Ranks:
    return Ranks(
        attempt=0,
        local={one.look.rank: one for one in histories},
        peers={peer.rank: peer for peer in peers},
    )


def moment(now_s: float, awake_since_s: float = float("-inf")) -> Moment:
    return Moment(now_s, 1_000_000.0 + now_s, "a", awake_since_s)


def peer(
    rank: int, phase: str = "communicating", age_s: float = 5.0, own_s: float = 0.0
) -> PeerRank:
    return PeerRank(rank, 10, phase, age_s, own_s, has_ended=False)
