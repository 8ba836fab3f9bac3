"""A healthy training of two ranks on a virtual clock, as a sidecar would see it, tick by tick.

What it does to itself is what healthy jobs do: batches of very different length, steps that
compile, evaluations, slow saves, uploads between two steps, storage that stalls. Nobody hangs.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tests.unit.ranks.scene import identity

from holdfast.contract.page import WORD_COUNT, Phase, Record, Word
from holdfast_sidecar.config.settings import StallSettings
from holdfast_sidecar.linux.syscalls import ThreadWait, Where
from holdfast_sidecar.ranks.history import CloserLook, Descendant, Inspection, scrutinise
from holdfast_sidecar.ranks.inspection import mark_of
from holdfast_sidecar.ranks.observation import ProcessLook, RankLook, Ranks, RankTracker
from holdfast_sidecar.ranks.stall import due_in_s, find_stalls, is_suspicious, suspects
from holdfast_sidecar.records.findings import Finding, Moment

TICK_S = 0.5
CLOSER_LOOK_S = 0.1
STEP_S = 0.02

PARTS = {
    Phase.DATA: "data_us",
    Phase.FORWARD: "forward_us",
    Phase.BACKWARD: "backward_us",
    Phase.OPTIMIZER: "optimizer_us",
    Phase.SAVING: "saving_us",
}


@dataclass(frozen=True)
class Activity:
    """What a process looks like while it does something."""

    runs: bool = False
    """Its main thread is on a CPU; else it waits."""
    main: ThreadWait | None = None
    at_work: str = ""
    worker: Descendant | None = None


COMPUTING = Activity(runs=True)
LOCK = ThreadWait(Where.LOCK, (202, 1, 1))
IN_COLLECTIVE = Activity(main=LOCK)
DEADLOCKED = Activity(main=LOCK)
"""The same from outside: that one is inside a collective and the other is not tells them apart."""

ANSWERED_LATE = Activity(main=ThreadWait(Where.NETWORK, (45, 1, 1)))
UPLOADED_BY_A_THREAD = Activity(main=LOCK, at_work="thread uploader waits for network")
TRIED_AGAIN_LATER = Activity(main=ThreadWait(Where.SLEEP, (230, 1, 1), 30.0))
UPLOADS = (ANSWERED_LATE, UPLOADED_BY_A_THREAD, TRIED_AGAIN_LATER)

READING_ITSELF = Activity(main=ThreadWait(Where.STORAGE, (0, 1, 1)))
FED_BY_A_WORKER = Activity(
    main=ThreadWait(Where.QUEUE, (7, 1, 1), 5.0),
    worker=Descendant(9, "pt_data_worker", "D", 5, is_worker=True, wait=ThreadWait(Where.STORAGE)),
)
FED_OVER_THE_NETWORK = Activity(
    main=ThreadWait(Where.QUEUE, (7, 1, 1), 5.0),
    worker=Descendant(9, "pt_data_worker", "S", 5, is_worker=True, wait=ThreadWait(Where.NETWORK)),
)
DATA_STALLS = (READING_ITSELF, FED_BY_A_WORKER, FED_OVER_THE_NETWORK)


@dataclass(frozen=True)
class Part:
    """A stretch of one phase of one rank."""

    phase: Phase
    seconds: float
    activity: Activity = COMPUTING


@dataclass
class SimulatedRank:
    """One rank: where it is in its step, and what of it has been read."""

    number: int
    at_s: float = 0.0
    """Up to when its parts are known."""
    step: int = 0
    progress: int = 0
    turns: int = 1
    cpu_ticks: float = 0.0
    phase: Phase = Phase.STARTING
    since_s: float = 0.0
    boundary_s: float = 0.0
    activity: Activity = COMPUTING
    spent: dict[str, int] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    ahead: deque[Part | None] = field(default_factory=deque)
    """Parts to come; None: there its step ends."""
    until_s: float = 0.0
    """The end of the present part."""

    def advance(self, now_s: float) -> None:
        """Live up to now, as far as its parts are known."""
        while self.until_s <= now_s and self.ahead:
            self.go_on(self.until_s)
            part = self.ahead.popleft()
            if part is None:
                self.end_step()
            else:
                self.enter(part)
                self.until_s = self.at_s + part.seconds
        self.go_on(min(now_s, self.until_s))

    def enter(self, part: Part) -> None:
        """Begin a part, now."""
        self.phase, self.activity, self.since_s = part.phase, part.activity, self.at_s
        self.progress += 1
        self.turns += 1

    def go_on(self, until_s: float) -> None:
        """Let time pass within the part."""
        elapsed_s = until_s - self.at_s
        if elapsed_s <= 0:
            return
        name = PARTS.get(self.phase, "other_us")
        self.spent[name] = self.spent.get(name, 0) + int(elapsed_s * 1e6)
        if self.activity.runs:
            self.turns += 1 + int(100 * elapsed_s)
        self.cpu_ticks += elapsed_s * (95.0 if self.activity.runs else 0.3)
        self.at_s = until_s

    def end_step(self) -> None:
        """Publish the step's record."""
        self.step += 1
        names = (*PARTS.values(), "other_us")
        parts: dict[str, Any] = {name: self.spent.get(name, 0) for name in names}
        record = Record(
            step=self.step,
            end_ns=int(self.at_s * 1e9),
            total_us=sum(parts.values()),
            communicating_us=0,
            loss=0.0,
            **parts,
        )
        self.records.append(record)
        self.spent.clear()
        self.boundary_s = self.at_s

    def look(self, now_s: float) -> RankLook:
        """What a sidecar reads now."""
        words = [0] * WORD_COUNT
        words[Word.STEP], words[Word.PHASE] = self.step, self.phase
        words[Word.PROGRESS] = self.progress
        words[Word.PHASE_SINCE_NS] = int(self.since_s * 1e9)
        words[Word.BOUNDARY_NS] = int(self.boundary_s * 1e9)
        records, self.records = tuple(self.records), []
        state = "R" if self.activity.runs else "S"
        return RankLook(
            identity=identity(self.number),
            at_s=now_s,
            words=tuple(words),
            is_gone=False,
            process=ProcessLook(state, int(self.cpu_ticks), self.turns),
            records=records,
        )

    def closer_look(self, look: RankLook) -> CloserLook:
        """What the probe reads of it under suspicion."""
        activity = self.activity
        main = ThreadWait(Where.CPU) if activity.runs else activity.main
        children = () if activity.worker is None else (activity.worker,)
        return CloserLook(look.at_s, mark_of(look), main, activity.at_work, children)


@dataclass(frozen=True)
class Habits:
    """How often (once in so many steps) and for how long the job does what."""

    evaluates_every: int = 9_000
    saves_every: int = 5_000
    uploads_every: int = 7_000
    stalls_every: int = 11_000
    compiles_every: int = 20_000
    upload_s: float = 40.0
    data_stall_s: float = 30.0
    hangs_at: int = 0
    """Rank 0 deadlocks in this step, for ever; 0: never."""


class Training:
    """Both ranks, a step at a time; whoever is early waits in the backward pass."""

    def __init__(self, seed: int, habits: Habits) -> None:
        self.random = random.Random(seed)
        self.habits = habits
        self.ranks = [SimulatedRank(0), SimulatedRank(1)]
        self.step = 0

    def advance(self, now_s: float) -> None:
        """Let both live up to now."""
        for rank in self.ranks:
            while not rank.ahead or rank.until_s <= now_s:
                self._plan_step()
                rank.advance(now_s)
            rank.advance(now_s)

    def _plan_step(self) -> None:
        self.step += 1
        alone = [self._alone(rank.number) for rank in self.ranks]
        lasts_s = [sum(part.seconds for part in parts) for parts in alone]
        together = self._together()
        for rank, parts, own_s in zip(self.ranks, alone, lasts_s, strict=True):
            waits_s = max(lasts_s) - own_s if own_s < math.inf else 0.0
            waiting = Part(Phase.BACKWARD, waits_s, IN_COLLECTIVE)
            rank.ahead.extend((*parts, waiting, *together, None))

    def _alone(self, number: int) -> list[Part]:
        """The parts of this step that a rank goes through before it meets the other."""
        habits, chance = self.habits, self.random
        parts = [Part(Phase.STARTING, 20.0)] if self.step == 1 else []
        if number == 0 and self.step % habits.uploads_every == 0:
            parts.append(Part(Phase.FORWARD, habits.upload_s, chance.choice(UPLOADS)))
        if number == 1 and self.step % habits.stalls_every == 0:
            parts.append(Part(Phase.DATA, habits.data_stall_s, chance.choice(DATA_STALLS)))
        else:
            parts.append(Part(Phase.DATA, 0.05 * STEP_S))
        if number == 0 and self.step == habits.hangs_at:
            parts.append(Part(Phase.FORWARD, math.inf, DEADLOCKED))
        if self.step == 1:
            parts.append(Part(Phase.FORWARD, 60.0))
        elif self.step % habits.compiles_every == 0:
            parts.append(Part(Phase.COMPILING, 45.0))
        parts.append(Part(Phase.FORWARD, 0.1 * STEP_S * 10 ** chance.uniform(0.0, 1.0)))
        return parts

    def _together(self) -> list[Part]:
        """The parts that both go through once they have met."""
        parts = [Part(Phase.BACKWARD, 0.4 * STEP_S), Part(Phase.OPTIMIZER, 0.1 * STEP_S)]
        if self.step % self.habits.saves_every == 0:
            parts.append(Part(Phase.SAVING, self.random.uniform(60.0, 300.0), READING_ITSELF))
        if self.step % self.habits.evaluates_every == 0:
            seen = self.random.choice((Phase.EVALUATING, Phase.FORWARD))
            parts.append(Part(seen, self.random.uniform(20.0, 100.0)))
        return parts


@dataclass
class SimulatedProbe:
    """Closer looks at simulated ranks."""

    ranks: list[SimulatedRank]
    known: dict[int, Inspection] = field(default_factory=dict)

    def look(self, doubtful: list[RankLook]) -> dict[int, Inspection]:
        """As `probes.closely.CloserProbe.look`."""
        self.known = {
            look.rank: scrutinise(
                self.known.get(look.rank), self.ranks[look.rank].closer_look(look)
            )
            for look in doubtful
        }
        return dict(self.known)


def watch(
    training: Training, steps: int, settings: StallSettings, lasts_s: float = 1000.0
) -> Iterator[tuple[float, Finding]]:
    """All findings, with their times, until so many steps are made, or none for so long."""
    attention, probe = RankTracker(), SimulatedProbe(training.ranks)
    now_s = moved_s = 0.0
    step = 0
    while step < steps and now_s < moved_s + lasts_s:
        training.advance(now_s)
        looks = [rank.look(now_s) for rank in training.ranks]
        if looks[0].step > step:
            step, moved_s = looks[0].step, now_s
        attention.take_in(looks, now_s)
        moment = Moment(now_s, now_s, "a", attention.awake_since_s)
        ranks = Ranks(0, attention.seen_at(now_s))
        ranks = replace(ranks, scrutinies=probe.look(suspects(ranks, settings, moment)))
        for finding in find_stalls(ranks, settings, moment):
            yield now_s, finding
        usual_s = CLOSER_LOOK_S if is_suspicious(ranks, settings, moment) else TICK_S
        now_s += min(usual_s, due_in_s(ranks, settings, moment) + 0.02)
