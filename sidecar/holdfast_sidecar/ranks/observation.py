"""What the node's loop saw: plain data that detectors judge and metrics tell.

Times are seconds of CLOCK_MONOTONIC unless a name says otherwise. Nothing here reads or decides.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from holdfast.contract.identity import ProcessIdentity
from holdfast.contract.page import (
    GROUPS_TIMED,
    Ending,
    Flag,
    Identity,
    Phase,
    Record,
    RecordFlag,
    Reply,
    Word,
    bits_float,
    parse_busy,
)
from holdfast_sidecar.config.settings import OVERSLEPT_S, NumbersSettings
from holdfast_sidecar.ranks.collectives import Arrival
from holdfast_sidecar.ranks.history import (
    Inspection,
    NumberHistory,
    OptimizerWindows,
    PhaseDurations,
    follow_numbers,
    is_ill,
    tells,
)
from holdfast_sidecar.records.collectives import RankTrace

RECORDS_KEPT = 64
"""Steps of history per rank: enough that the largest of them has seen the job's usual hiccups
(a periodic log line, a garbage collection), few enough that a slower era is soon forgotten."""

STILL_TICKS = 4.0
STILL_TICKS_PER_S = 5.0
"""CPU time a rank may use and still count as standing still, in clock ticks: 5 %, and 40 ms at
once. Background threads of torch and of trackers wake up now and then, and a flight recorder that
is asked for its ring takes 30 ms to answer. Work that others wait for takes a core's worth."""


PHASES = {phase.value: phase for phase in Phase}
"""Asked a hundred times a tick, where making a Phase of its number takes six times as long."""


@dataclass(frozen=True)
class ProcessLook:
    """A rank's process as /proc shows it. CPU time is of all its threads, in clock ticks."""

    state: str
    cpu_ticks: int
    main_thread_turns: int | None = None
    """How often the main thread got onto a CPU; None where the kernel doesn't count it."""
    main_thread_queued_ns: int | None = None
    """For how long it was ready to run so far, and had no CPU; None likewise."""
    major_faults: int = 0
    """Pages that had to be read from storage before the process could go on, so far."""


@dataclass(frozen=True)
class RankLook:
    """One look at one rank."""

    identity: Identity
    at_s: float
    words: tuple[int, ...]
    is_gone: bool
    process: ProcessLook | None = None
    """None: gone, or in a process namespace that can't be seen from here."""
    records: tuple[Record, ...] = ()
    """Only those that are new since the look before."""
    reply: Reply | None = None
    last_words: dict[str, Any] | None = None
    unrestorable: tuple[str, ...] = ()
    """What of its state could not be restored, as it found at its first steps."""
    is_dying: bool = False
    """It ends and nothing keeps it from it; its memory, ports and devices are free once it is gone.
    """
    exit_code: int | None = None
    """How it ends or ended, negative: by that signal; None: alive, or gone for too long to ask."""
    oom_kills: int | None = None
    """Processes of its memory cgroup that the OOM killer took so far; None: nobody counts."""
    is_oom_victim: bool = False
    """The kernel's log says that the OOM killer took this very process."""

    @property
    def has_died(self) -> bool:
        """Whether nothing more will come of it."""
        return self.is_gone or self.is_dying

    @property
    def rank(self) -> int:
        """The rank's number in the job."""
        return self.identity.rank

    @property
    def step(self) -> int:
        """Steps completed."""
        return self.words[Word.STEP]

    @property
    def phase(self) -> Phase:
        """What it is doing; a number that is no phase reads as idle."""
        return PHASES.get(self.words[Word.PHASE], Phase.IDLE)

    @property
    def moved_s(self) -> float:
        """When its phase last changed, its step last ended, or its script last said what it does,
        whichever is latest."""
        newest_ns = max(
            self.words[Word.PHASE_SINCE_NS],
            self.words[Word.BOUNDARY_NS],
            self.words[Word.BUSY_CHANGED_NS],
            self.identity.claimed_ns,
        )
        return newest_ns / 1e9

    @property
    def busy(self) -> str:
        """What its script says that it is busy with; empty: it says nothing."""
        return parse_busy(self.words)

    @property
    def has_finished(self) -> bool:
        """Whether it said that it ended well."""
        return self.words[Word.ENDING] == Ending.FINISHED or self.phase is Phase.FINISHED

    @property
    def loss(self) -> float | None:
        """The newest reported loss; None when none was reported."""
        return newest_loss(self.words)

    @property
    def tokens(self) -> int:
        """Tokens that it said it trained on in this attempt; 0: it says nothing of them."""
        return self.words[Word.TOKENS]

    @property
    def gradient_norm(self) -> float | None:
        """The newest reported gradient norm; None when none was reported."""
        return newest_norm(self.words)

    def has(self, flag: Flag) -> bool:
        """Whether the process set this flag."""
        return bool(self.words[Word.FLAGS] & flag)


@dataclass(frozen=True)
class RankHistory:
    """What is remembered of a rank within one attempt."""

    look: RankLook
    records: tuple[Record, ...] = ()
    first_seen_s: float = 0.0
    was_seen_alive: bool = False
    still_since: RankLook | None = None
    """The look since which neither progress nor CPU time moved."""
    stopped_since_s: float | None = None
    """Since when every look found the process stopped (state T)."""
    stopped_until_s: float = -math.inf
    """When a look last found it so."""
    gone_since_s: float | None = None
    """Since when it has been dying or gone."""
    exit_code: int | None = None
    """As in the look that knew."""
    oom_seen_s: float | None = None
    """When the OOM killer was last seen to have taken a process of its memory cgroup."""
    phase_totals: Mapping[str, float] = field(default_factory=dict)
    """Seconds of completed steps by phase, as far as this sidecar saw them."""
    collector_s: float = 0.0
    """Of them: Python's garbage collector."""
    group_waits_s: tuple[float, ...] = (0.0,) * GROUPS_TIMED
    """Of them: what it waited in each of its first process groups."""
    onset_step: int = -1
    """Since which step numbers have not been finite, without a break; -1: the newest are."""
    numbers: NumberHistory = field(default_factory=NumberHistory)
    """What its losses and gradient norms were."""
    ill_numbers: int = 0
    """How many of them were NaN or infinite, in this attempt."""
    ill_seen_s: float = -math.inf
    """When there were last more of them than a look before."""
    pace: PhaseDurations = field(default_factory=PhaseDurations)
    """What its steps took so far in this attempt."""
    windows: OptimizerWindows = field(default_factory=OptimizerWindows)
    """What lies between two calls of its optimizer."""

    @property
    def whole_steps(self) -> tuple[Record, ...]:
        """Its records without the first of the attempt: some of that step was over before anybody
        looked, a script's first forward pass say, and how much differs between ranks. After a
        sidecar's restart the first that it saw is left out likewise, and may have been whole."""
        is_first_there = self.pace.steps == len(self.records)
        return self.records[1:] if is_first_there else self.records

    @property
    def has_ended_well(self) -> bool:
        """Whether it said so, or its exit code does: `os._exit(0)` passes all that could say it."""
        return self.look.has_finished or (self.gone_since_s is not None and self.exit_code == 0)

    @property
    def stopped_ago_s(self) -> float:
        """For how long no look has found it stopped; 0: it is."""
        return self.look.at_s - self.stopped_until_s

    @property
    def still_s(self) -> float:
        """For how long it has been seen standing still."""
        return 0.0 if self.still_since is None else self.look.at_s - self.still_since.at_s


DEFAULT_NUMBERS = NumbersSettings()


def follow(
    before: RankHistory | None, look: RankLook, numbers: NumbersSettings = DEFAULT_NUMBERS
) -> RankHistory:
    """The history after one more look; it starts anew when the page changed hands."""
    if before is None or before.look.identity != look.identity:
        before = RankHistory(look=look, first_seen_s=look.at_s, still_since=look)
    ill_numbers = count_ill(look.words)
    records = (*before.records, *look.records) if look.records else before.records
    is_stopped = look.process is not None and look.process.state == "T"
    return replace(
        before,
        look=look,
        records=records[-RECORDS_KEPT:],
        was_seen_alive=before.was_seen_alive or not look.has_died,
        still_since=before.still_since if _stands_still(before.still_since, look) else look,
        stopped_since_s=_since(before.stopped_since_s, is_stopped, look.at_s),
        stopped_until_s=look.at_s if is_stopped else before.stopped_until_s,
        gone_since_s=_since(before.gone_since_s, look.has_died, look.at_s),
        exit_code=look.exit_code if look.exit_code is not None else before.exit_code,
        oom_seen_s=look.at_s if _oom_struck(before.look, look) else before.oom_seen_s,
        phase_totals=_add_up(before.phase_totals, look.records),
        collector_s=before.collector_s + sum(one.collector_us for one in look.records) / 1e6,
        group_waits_s=_add_waits(before.group_waits_s, look.records),
        numbers=follow_numbers(before.numbers, look.records, numbers),
        ill_numbers=ill_numbers,
        ill_seen_s=look.at_s if ill_numbers > before.ill_numbers else before.ill_seen_s,
        pace=before.pace.after(look.records),
        windows=before.windows.after(look.records, look.words[Word.OPTIMIZER_CALLS]),
        onset_step=find_onset(look.words, records, before.onset_step),
    )


def find_onset(words: tuple[int, ...], records: Sequence[Record], known: int = -1) -> int:
    """Since which step numbers have not been finite, without a break; -1: the newest are.

    records: what is still known of the latest steps; known: what was found by an earlier look. A
    loss that was a number again ends it: somebody passed over such steps, and training goes on.
    """
    ill_since = _ill_since(words)
    if ill_since < 0:
        return -1
    onset = known if known >= 0 else ill_since
    for record in reversed(records):
        if tells(record):
            if not is_ill(record):
                break
            onset = min(onset, record.step)
    return onset


def _ill_since(words: tuple[int, ...]) -> int:
    """Step of the newest loss or gradient norm if it is not finite; -1: it is.

    A loss that is finite at a later step than a bad norm says that those gradients were not used.
    """
    loss, norm = newest_loss(words), newest_norm(words)
    if loss is not None and not is_finite(loss):
        return words[Word.LOSS_STEP]
    is_newest = words[Word.GRADIENT_STEP] >= words[Word.LOSS_STEP]
    if norm is not None and not is_finite(norm) and is_newest:
        return words[Word.GRADIENT_STEP]
    return -1


def count_ill(words: tuple[int, ...]) -> int:
    """Losses and gradient norms so far that were NaN or infinite."""
    return words[Word.NONFINITE] + words[Word.NONFINITE_GRADIENTS]


def newest_loss(words: tuple[int, ...]) -> float | None:
    """The newest reported loss; None when none was reported."""
    bits, step = words[Word.LOSS_BITS], words[Word.LOSS_STEP]
    return None if bits == 0 and step == 0 else bits_float(bits)


def newest_norm(words: tuple[int, ...]) -> float | None:
    """The newest reported gradient norm; None when none was reported."""
    return bits_float(words[Word.GRADIENT_BITS]) if words[Word.GRADIENT_STEP] else None


PHASES_OF_A_STEP = (
    "data",
    "forward",
    "backward",
    "communicating",
    "optimizer",
    "saving",
    "other",
    "transfer",
    "evaluating",
    "compiling",
)
"""What a record splits a step into."""

UNSPLIT = "unsplit"
"""Steps of which only the whole was measured, since they are short: none of it is `other`."""

_split: Callable[[Record], tuple[int, ...]] = attrgetter(*(f"{p}_us" for p in PHASES_OF_A_STEP))
_WHOLE_ONLY = int(RecordFlag.WHOLE_ONLY)
_WAITS_SEEN = int(RecordFlag.WAITS_SEEN)


def _add_up(totals: Mapping[str, float], records: tuple[Record, ...]) -> Mapping[str, float]:
    if not records:
        return totals or dict.fromkeys((*PHASES_OF_A_STEP, UNSPLIT), 0.0)
    sums_us = dict(
        zip(PHASES_OF_A_STEP, map(sum, zip(*map(_split, records), strict=True)), strict=True)
    )
    sums_us[UNSPLIT] = sum(one.other_us for one in records if one.flags & _WHOLE_ONLY)
    sums_us["other"] -= sums_us[UNSPLIT]
    return {phase: totals.get(phase, 0.0) + sum_us / 1e6 for phase, sum_us in sums_us.items()}


def _add_waits(totals_s: tuple[float, ...], records: tuple[Record, ...]) -> tuple[float, ...]:
    if not records:
        return totals_s
    sums_us = map(sum, zip(*(one.waits_us for one in records), strict=True))
    return tuple(total + us / 1e6 for total, us in zip(totals_s, sums_us, strict=True))


def _since(before: float | None, is_so: bool, at_s: float) -> float | None:
    if not is_so:
        return None
    return at_s if before is None else before


def _oom_struck(before: RankLook, look: RankLook) -> bool:
    if look.oom_kills is None or before.oom_kills is None:
        return look.is_oom_victim
    return look.is_oom_victim or look.oom_kills > before.oom_kills


def _stands_still(anchor: RankLook | None, look: RankLook) -> bool:
    if anchor is None or anchor.process is None or look.process is None:
        return False
    used = look.process.cpu_ticks - anchor.process.cpu_ticks
    return (
        anchor.words[Word.PROGRESS] == look.words[Word.PROGRESS]
        and anchor.step == look.step
        and anchor.process.main_thread_turns == look.process.main_thread_turns
        and used <= STILL_TICKS + STILL_TICKS_PER_S * (look.at_s - anchor.at_s)
    )


def step_s(records: tuple[Record, ...], steps: int) -> float:
    """Median wall time of the last `steps` steps; 0 when there is none."""
    return _median(records, steps, lambda record: record.total_us / 1e6)


def own_s(records: tuple[Record, ...], steps: int) -> float:
    """Median own time of the last `steps` steps whose parts were measured; 0 when there is none.

    Of the others only the whole is known, waiting included.
    """
    measured = tuple(one for one in records if not one.flags & _WHOLE_ONLY)
    return _median(measured, steps, own_of)


def own_of(record: Record) -> float:
    """Seconds of a step that a rank spent on its own work.

    This leaves out what comes rarely (saving, evaluating, compiling) and what a rank waits for
    others: communicating, and the backward pass unless the record says that what DDP's reducer
    waits in there was seen and taken off.
    """
    left_out_us = record.communicating_us + record.saving_us
    left_out_us += record.evaluating_us + record.compiling_us
    if not record.flags & _WAITS_SEEN:
        left_out_us += record.backward_us
    return max(0, record.total_us - left_out_us) / 1e6


def _median(records: tuple[Record, ...], steps: int, part: Callable[[Record], float]) -> float:
    latest = records[-steps:]
    return statistics.median(map(part, latest)) if latest else 0.0


@dataclass(frozen=True)
class PeerRank:
    """A rank of another node as its own sidecar reported it."""

    rank: int
    step: int
    phase: str
    phase_age_s: float
    has_ended: bool
    stopped_ago_s: float = math.inf
    """For how long its process has not been stopped; 0: it is."""
    is_busy: bool = False
    """Its script says so."""


@dataclass(frozen=True)
class Ranks:
    """All ranks of the attempt as far as they can be seen from this node."""

    attempt: int = -1
    local: dict[int, RankHistory] = field(default_factory=dict)
    peers: dict[int, PeerRank] = field(default_factory=dict)
    scrutinies: Mapping[int, Inspection] = field(default_factory=dict)
    """What closer looks have shown of those local ranks that are under suspicion."""
    traces: Mapping[int, RankTrace] = field(default_factory=dict)
    """Where ranks, here and elsewhere, stand in their collectives; only while one is doubtful."""
    arrival: Arrival | None = None
    """What that says about who keeps the others waiting."""

    @property
    def world_size(self) -> int:
        """Ranks in the attempt; 0 when no page was read."""
        return max((h.look.identity.world_size for h in self.local.values()), default=0)


def is_finite(value: float | None) -> bool:
    """Whether a reported value is a number to show; absence and NaN are not."""
    return value is not None and math.isfinite(value)


# What the loop remembers of its ranks from tick to tick; all of it ends with the attempt.


@dataclass
class RankTracker:
    """Histories of the ranks of the newest attempt, by rank."""

    attempt: int = -1
    histories: dict[int, RankHistory] = field(default_factory=dict)
    awake_since_s: float = float("-inf")
    numbers: NumbersSettings = field(default_factory=NumbersSettings)
    _looked_s: float | None = None

    def take_in(self, looks: Sequence[RankLook], now_s: float) -> None:
        """Remember one more look at every rank."""
        if self._looked_s is not None and now_s - self._looked_s > OVERSLEPT_S:
            self.awake_since_s = now_s
        self._looked_s = now_s
        self.attempt = looks[0].identity.attempt if looks else -1
        self.histories = {
            look.rank: follow(self.histories.get(look.rank), look, self.numbers)
            for look in sorted(looks, key=lambda look: look.rank)
        }

    def looks(self) -> list[RankLook]:
        """The newest look at each rank."""
        return [history.look for history in self.histories.values()]

    def seen_at(self, now_s: float) -> dict[int, RankHistory]:
        """Histories of the ranks that were looked at just now; nobody is judged by an old look."""
        return {rank: one for rank, one in self.histories.items() if one.look.at_s == now_s}

    def dead_ranks(self) -> list[ProcessIdentity]:
        """The processes of ranks that are gone."""
        return [
            ProcessIdentity(history.look.identity.pid, history.look.identity.start_ticks)
            for history in self.histories.values()
            if history.look.is_gone
        ]
