"""Where a run's wall-clock time went: one counter for each category, exactly one of them open.

It stands in the store as a hash of whole microseconds, so that sums stay exact; `turn_of_account`
says how it moves on. What the numbers mean: docs/goodput.md.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

MICRO = 1_000_000

PENDING = "pending"
"""Open while ranks train: only when a step has ended it is known what its time was spent on."""

CLOSED = ""
"""Nothing is open: the run is over."""


class Category(str, Enum):
    """What a moment of a run's life is put down to; docs/goodput.md defines each."""

    QUEUED = "queued"  # it waits for enough nodes; counts neither for nor against the run
    INIT = "init"  # the first attempt's processes start and find each other
    SETUP = "setup"  # they build the model and whatever else comes before the first step
    WARMUP = "warmup"  # first steps, by what they take more than those after them
    RESTORE = "restore"  # state is read back
    PRODUCTIVE = "productive"
    DATA_WAIT = "data_wait"  # the middle rank waits for its batch
    SAVING = "saving"  # the loop is kept by a checkpoint or a snapshot
    EVALUATING = "evaluating"
    COMPILING = "compiling"
    STRAGGLER = "straggler"  # everybody waits for somebody slow
    HANG_UNDETECTED = "hang_undetected"  # nothing moves any more, and nobody has said so
    DRAINING = "draining"  # evidence is kept, ranks end, what is in memory is written down
    RESTART = "restart"  # from there to the first step of the next attempt
    PAUSED = "paused"  # nothing runs, and a person has paused the job
    UNOBSERVED = "unobserved"  # nobody was there to see
    OTHER = "other"


TRAINING = frozenset(
    {
        Category.PRODUCTIVE,
        Category.DATA_WAIT,
        Category.SAVING,
        Category.EVALUATING,
        Category.COMPILING,
        Category.STRAGGLER,
    }
)
"""What the time of steps is split into."""


class Phase(str, Enum):
    """Parts of a restart, in their order."""

    DETECT = "detect"  # from the first sign until it was declared
    DRAIN = "drain"  # until the ranks were gone, and what was in memory was written down
    RENDEZVOUS = "rendezvous"  # until the new ranks have met and are about to load
    RESTORE = "restore"
    FIRST_STEP = "first_step"  # until every rank has made a step


TIMED = (Phase.DRAIN, Phase.RENDEZVOUS, Phase.RESTORE, Phase.FIRST_STEP)
"""Phases that the account itself takes the time of; DETECT lies before anybody knew."""


@dataclass(frozen=True)
class IncidentCost:
    """What one incident cost, once it is over. Times in microseconds."""

    phases: Mapping[str, int]
    """Phase -> its time."""
    lost_us: int
    """Training that had to be done again."""
    lost_gpu_us: int
    lost_steps: int
    cause: str
    node: str = ""
    """The machine that is to blame; empty: none is."""

    @property
    def down_us(self) -> int:
        """From the first sign until every rank was stepping again."""
        return sum(self.phases.values())


@dataclass(frozen=True)
class ProgressMark:
    """At this step so much productive time stood behind the run that was not lost since."""

    step: int
    net_us: int


@dataclass(frozen=True)
class Account:
    """A run's account as it was last written down. Times are whole microseconds."""

    began_us: int
    """On the store's clock, Unix time, as `at_us`: the account's sums are what lies between."""
    at_us: int
    """Up to when it is written."""
    open: str = CLOSED
    """A category's value, PENDING or CLOSED."""
    stage: str = ""
    """`incident:phase` of the restart under way; empty: there is none."""
    run: str = ""
    """Which run of the job it is of; empty: its first attempt isn't opened yet."""
    attempt: int = -1
    split_attempt: int = -1
    """The newest attempt of which a step's time was split."""
    gpus: int = 0
    """GPUs (ranks where there are none) that the open time is weighted by."""
    nodes: int = 0
    """Nodes of the run's largest attempt."""
    pending_us: int = 0
    weight: int = 0
    """GPUs of the attempt that trained last."""
    toll_us: int = 0
    """Of what slowness cost, as its judge adds it up, so much is in here."""
    micros: Mapping[str, int] = field(default_factory=dict)
    """Category -> time."""
    gpu_micros: Mapping[str, int] = field(default_factory=dict)
    """The same times GPUs."""
    stages: Mapping[str, int] = field(default_factory=dict)
    """`incident:phase` -> time, of restarts that are not over."""
    costs: Mapping[str, IncidentCost] = field(default_factory=dict)
    """Incident -> what it cost, of those that are over."""
    marks: tuple[ProgressMark, ...] = ()
    """Rising in step, for what a restart loses to be told in time."""

    @property
    def is_training(self) -> bool:
        """Whether steps are being made."""
        return self.open == PENDING

    @property
    def has_trained(self) -> bool:
        """Whether any step was ever told of."""
        return any(self.micros.get(category.value) for category in TRAINING)

    @property
    def total_us(self) -> int:
        """All of the run so far, what waits to be split included."""
        return sum(self.micros.values()) + self.pending_us

    def seconds(self, category: Category) -> float:
        """What was put down to it."""
        return self.micros.get(category.value, 0) / MICRO

    def gpu_seconds(self, category: Category) -> float:
        """The same, times GPUs."""
        return self.gpu_micros.get(category.value, 0) / MICRO

    @property
    def lost_us(self) -> int:
        """Training that had to be done again, over all incidents."""
        return sum(cost.lost_us for cost in self.costs.values())

    @property
    def net_us(self) -> int:
        """Productive time that still stands."""
        return self.micros.get(Category.PRODUCTIVE.value, 0) - self.lost_us


def parse_account(fields: Mapping[str, str]) -> Account | None:
    """The account in a hash; None when there is none, or it is none."""
    if "at" not in fields:
        return None
    try:
        return _parse(fields)
    except ValueError:
        return None


def _parse(fields: Mapping[str, str]) -> Account:
    def whole(name: str, otherwise: int = 0) -> int:
        return int(fields.get(name, otherwise))

    return Account(
        began_us=whole("began"),
        at_us=whole("at"),
        open=fields.get("open", CLOSED),
        stage=fields.get("stage", ""),
        run=fields.get("run", ""),
        attempt=whole("attempt", -1),
        split_attempt=whole("split", -1),
        gpus=whole("gpus"),
        nodes=whole("nodes"),
        pending_us=whole("pending"),
        weight=whole("weight"),
        toll_us=whole("toll"),
        micros=_amounts(fields, "s:"),
        gpu_micros=_amounts(fields, "g:"),
        stages=_amounts(fields, "r:"),
        costs={name[2:]: _cost(text) for name, text in fields.items() if name.startswith("i:")},
        marks=parse_marks(fields.get("marks", "")),
    )


def _amounts(fields: Mapping[str, str], prefix: str) -> dict[str, int]:
    return {
        name[len(prefix) :]: int(text) for name, text in fields.items() if name.startswith(prefix)
    }


def spell_cost(cost: IncidentCost) -> tuple[str, str]:
    """What stands before and after the phases that the account took the time of, in its text."""
    known = cost.phases.get(Phase.DETECT.value, 0)
    return (
        str(known),
        f"{cost.lost_us} {cost.lost_gpu_us} {cost.lost_steps} {cost.cause} {cost.node}",
    )


COSTS_KEPT = 4096
"""Texts of costs whose meaning is remembered: they never change, each is read several times a
second, and 4096 failures are more than any run survives."""


@functools.lru_cache(COSTS_KEPT)
def _cost(text: str) -> IncidentCost:
    """The text: detect and the TIMED phases, then lost time, GPU time and steps, cause, node."""
    words = text.split(" ", len(Phase) + 4)
    phases = {phase.value: int(word) for phase, word in zip(Phase, words, strict=False)}
    lost_us, lost_gpu_us, lost_steps = map(int, words[len(Phase) : len(Phase) + 3])
    cause, node = (*words[len(Phase) + 3 :], "", "")[:2]
    return IncidentCost(phases, lost_us, lost_gpu_us, lost_steps, cause, node)


def parse_marks(text: str) -> tuple[ProgressMark, ...]:
    """Marks from `step:net step:net …`."""
    pairs = (word.split(":") for word in text.split())
    return tuple(ProgressMark(int(step), int(net)) for step, net in pairs)


def spell_marks(marks: Iterable[ProgressMark]) -> str:
    """The marks as they stand in the store."""
    return " ".join(f"{mark.step}:{mark.net_us}" for mark in marks)
