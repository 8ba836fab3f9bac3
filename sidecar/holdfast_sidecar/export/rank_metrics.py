"""What is told about each rank of this node."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from holdfast.contract.page import ReplyState, Word
from holdfast_sidecar.export.sidecar_metrics import draw_energy
from holdfast_sidecar.export.state import Picture
from holdfast_sidecar.performance.stragglers.groups import UNDEFINED
from holdfast_sidecar.performance.stragglers.metrics import draw_memory
from holdfast_sidecar.ranks.observation import UNSPLIT, RankHistory, is_finite, own_s, step_s
from holdfast_sidecar.ranks.probe import STEPS_OF_PACE
from holdfast_sidecar.records.metric import RANK, Entry, Sample, Told, counter
from holdfast_sidecar.records.steps import NOWHERE, parse_groups

# Metrics of what ranks exchange in which process group; `group_samples.py` fills them in.

GROUP = (*RANK, "group")

GROUPS: tuple[Entry, ...] = (
    counter(
        "rank_group_calls_total",
        "",
        GROUP,
        "Collectives and messages that the rank began in this process group, one of its first four;"
        " absent while it is in none.",
    ),
    counter(
        "rank_group_bytes_total",
        "bytes",
        GROUP,
        "Bytes of the larger side of each, as far as they were seen: what is reduced, gathered,"
        " scattered. By the time that they take it is the algorithm bandwidth.",
    ),
    counter(
        "rank_group_wait_seconds_total",
        "seconds",
        GROUP,
        "Time that the rank stood waiting in them, of steps that were measured in parts; what runs"
        " behind the computing is not in it.",
    ),
)


# What is told of a rank's process groups: those whose waits are told apart.


def draw_groups(history: RankHistory, groups: Sequence[str], told: Told) -> Iterator[Sample]:
    """groups: as the rank's report tells them."""
    words = history.look.words
    for slot, name in enumerate(name_groups(groups)):
        if name:
            yield from told("rank_group_calls_total", words[Word.COLLECTIVES_1 + slot], group=name)
            yield from told("rank_group_bytes_total", words[Word.SENT_BYTES_1 + slot], group=name)
            waited_s = history.group_waits_s[slot]
            yield from told("rank_group_wait_seconds_total", waited_s, group=name)


def name_groups(groups: Sequence[str]) -> list[str]:
    """What each is for, else a sign of its members; numbered where several are alike. Empty: there
    is none."""
    names: list[str] = []
    for group in parse_groups(list(groups)):
        title = "" if group is None or group.title == UNDEFINED else group.title
        name = title or (f"group {group.digest[:8]}" if group is not None else "")
        alike = sum(one.partition(" #")[0] == name for one in names)
        names.append(f"{name} #{alike + 1}" if name and alike else name)
    return names


TICK_S = 1 / os.sysconf("SC_CLK_TCK")


RARE = frozenset({"data", "saving", "evaluating", "compiling", "transfer", UNSPLIT})
"""Many ranks never do one or the other: series, of thousands of ranks, that would be 0 for ever."""


def draw_ranks(picture: Picture, told: Told) -> Iterator[Sample]:
    """Every rank of the newest attempt on this node."""
    for rank, history in picture.ranks.local.items():
        yield from _draw_rank(history, picture, told.about(rank=str(rank)))


def _draw_rank(history: RankHistory, picture: Picture, told: Told) -> Iterator[Sample]:
    look, words, moment = history.look, history.look.words, picture.moment
    boundary_ns = words[Word.BOUNDARY_NS]
    yield from told("rank_up", not look.has_died)
    yield from told("rank_step", look.step)
    yield from told("rank_phase_id", look.phase)
    is_told = words[Word.BUSY_CHANGED_NS] > 0
    yield from told("rank_busy", bool(look.busy) if is_told else None)
    since_s = words[Word.PHASE_SINCE_NS] / 1e9
    yield from told(
        "rank_phase_since_timestamp_seconds", moment.unix_s(since_s) if since_s else None
    )
    yield from told(
        "rank_last_step_timestamp_seconds",
        moment.unix_s(boundary_ns / 1e9) if look.step else None,
    )
    yield from told("rank_step_seconds", step_s(history.whole_steps, STEPS_OF_PACE) or None)
    yield from told("rank_own_seconds", own_s(history.whole_steps, STEPS_OF_PACE) or None)
    for phase, total_s in history.phase_totals.items():
        if total_s or phase not in RARE:
            yield from told("rank_phase_seconds_total", total_s, phase=phase)
    yield from told("rank_gc_seconds_total", history.collector_s)
    yield from told("rank_loss", look.loss if is_finite(look.loss) else None)
    yield from told("rank_nonfinite_losses_total", words[Word.NONFINITE])
    norm = look.gradient_norm
    yield from told("rank_gradient_norm", norm if is_finite(norm) else None)
    yield from told("rank_nonfinite_gradients_total", words[Word.NONFINITE_GRADIENTS])
    yield from told("rank_scaler_skipped_steps", words[Word.SCALER_SKIPS])
    yield from told("rank_spikes_total", history.numbers.spikes)
    yield from told("rank_collectives_total", words[Word.COLLECTIVES_ENTERED])
    yield from told("rank_optimizer_calls_total", words[Word.OPTIMIZER_CALLS])
    yield from told("rank_hook_errors_total", words[Word.HOOK_ERRORS])
    yield from told("rank_resumed_step", words[Word.RESUMED_STEP])
    if look.reply is not None and look.reply.state in (ReplyState.SAVED, ReplyState.COPIED):
        yield from told("rank_checkpoint_seconds", look.reply.duration_ns / 1e9)
        yield from told("rank_checkpoint_bytes", look.reply.size_bytes)
    yield from draw_memory(look, told)
    standing = picture.machine.layouts.get(look.rank, NOWHERE)
    yield from draw_groups(history, standing.groups, told)
    yield from draw_energy(picture.gpus.energy.of(look.rank), look.tokens, told)
    cpu_ticks = None if look.process is None else look.process.cpu_ticks
    yield from told("rank_cpu_seconds_total", None if cpu_ticks is None else cpu_ticks * TICK_S)
