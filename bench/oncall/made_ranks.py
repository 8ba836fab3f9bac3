"""What a sidecar sees of its ranks' pages in a made-up job: they train, and nothing is ill."""

from __future__ import annotations

from collections.abc import Mapping

from bench.oncall.made_job import ATTEMPT, EPOCH, OWN_S, RUN, STEP_S, MadeJob, own_s
from holdfast.contract.page import (
    WORD_COUNT,
    Ending,
    Identity,
    Phase,
    Record,
    Reply,
    ReplyState,
    Word,
    float_bits,
)
from holdfast_sidecar.ranks.observation import ProcessLook, RankHistory, RankLook, follow

MOST_NEW = 20
"""Records in one look; a first look finds no more than the latest."""
LOSS, GRADIENT = 2.5, 0.8
TOKENS_A_STEP = 1000
SLOT_BYTES = 3 * 10**9


def follow_ranks(
    before: Mapping[int, RankHistory], job: MadeJob, node: str, now_s: float, now_unix_s: float
) -> dict[int, RankHistory]:
    """All ranks of a node, looked at once more."""
    made = {}
    for rank in job.ranks_of(node):
        known = before.get(rank)
        look = _look(job, node, rank, now_s, now_unix_s, 0 if known is None else known.look.step)
        made[rank] = follow(known, look)
    return made


def _look(
    job: MadeJob, node: str, rank: int, now_s: float, now_unix_s: float, seen: int
) -> RankLook:
    step = job.step(now_unix_s)
    first = max(seen, step - MOST_NEW) + 1
    records = tuple(
        _record(one, now_s - (step - one) * STEP_S, own_s(rank, now_unix_s))
        for one in range(first, step + 1)
    )
    return RankLook(
        identity=_identity(job, node, rank),
        at_s=now_s,
        words=_words(rank, step, now_s),
        is_gone=False,
        process=ProcessLook("S", 100 * step, 50 * step),
        records=records,
        reply=Reply(ReplyState.SAVED, step - 240, SLOT_BYTES, 250_000_000, "c7"),
    )


def _identity(job: MadeJob, node: str, rank: int) -> Identity:
    return Identity(
        pid=1000 + rank,
        start_ticks=77,
        attempt=ATTEMPT,
        epoch=EPOCH,
        rank=rank,
        local_rank=rank - job.ranks_of(node)[0],
        world_size=job.ranks,
        claimed_ns=rank,
        node=node,
        job=RUN,
    )


def _record(step: int, end_s: float, worked_s: float) -> Record:
    """A step in which forward took a third of its own work and backward the rest."""
    own_us = int(worked_s * 1e6)
    total_us = int(STEP_S * 1e6)
    forward_us, data_us, optimizer_us = own_us // 3, own_us // 50, own_us // 20
    return Record(
        step=step,
        end_ns=int(end_s * 1e9),
        total_us=total_us,
        data_us=data_us,
        forward_us=forward_us,
        backward_us=own_us - forward_us - data_us - optimizer_us,
        communicating_us=max(0, total_us - own_us),
        optimizer_us=optimizer_us,
        saving_us=0,
        other_us=0,
        loss=LOSS,
        gradient_norm=GRADIENT,
        tokens=TOKENS_A_STEP,
    )


def _words(rank: int, step: int, now_s: float) -> tuple[int, ...]:
    words = [0] * WORD_COUNT
    now_ns = int(now_s * 1e9)
    told = {
        Word.STEP: step,
        Word.PHASE: Phase.BACKWARD,
        Word.PHASE_SINCE_NS: now_ns - int(OWN_S * 1e9),
        Word.BOUNDARY_NS: now_ns - int(STEP_S * 1e9),
        Word.PROGRESS: 7 * step,
        Word.ENDING: Ending.RUNNING,
        Word.COLLECTIVES_ENTERED: 4 * step,
        Word.OPTIMIZER_CALLS: step,
        Word.LOSS_BITS: float_bits(LOSS),
        Word.LOSS_STEP: step,
        Word.GRADIENT_BITS: float_bits(GRADIENT),
        Word.GRADIENT_STEP: step,
        Word.TOKENS: TOKENS_A_STEP * step,
        Word.SNAPSHOTS_TAKEN: step // 2,
        Word.SNAPSHOT_BLOCKED_NS: 20_000_000 * step,
        Word.SNAPSHOT_LAST_NS: 18_000_000,
        Word.SNAPSHOT_FIRST_NS: 50_000_000,
        Word.MEMORY_ALLOCATED: 50 * 10**9,
        Word.MEMORY_RESERVED: 60 * 10**9 + rank,
        Word.MEMORY_PEAK: 61 * 10**9,
        Word.MEMORY_TOTAL: 85 * 10**9,
        Word.COLLECTIVES_1: 3 * step,
        Word.COLLECTIVES_2: step,
        Word.SENT_BYTES_1: 10**8 * step,
        Word.SENT_BYTES_2: 10**7 * step,
    }
    for word, value in told.items():
        words[word] = int(value)
    return tuple(words)
