"""What happens in the demonstration, and when: the job's shape and the faults, in order."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

NODES = ("a", "b", "c")
"""Two nodes train, the last one is the spare."""

TRAINING_NODES = 2
RANKS_PER_NODE = 2
WORLD_SIZE = TRAINING_NODES * RANKS_PER_NODE
SAVE_EVERY_STEPS = 100
"""They are written at the lowest priority: on two cores that four ranks keep busy, one takes a
hundred steps, and a request that comes meanwhile waits for it."""
SNAPSHOT_EVERY_STEPS = 1
"""The model is small: what is worked out from the cost would be less often, and show less."""


class Kind(str, Enum):
    """What is done to the job."""

    KILL_RANK = "kill a rank"
    FREEZE_RANK = "freeze a rank"
    SAVE = "ask for a checkpoint"
    KILL_NODE = "kill a node"


@dataclass(frozen=True)
class Event:
    """One thing done to the job, no earlier than this step of its slowest rank.

    `rank` is the one that is hurt; for a node, the first rank on it.
    """

    kind: Kind
    at_step: int
    rank: int = -1

    @property
    def causes(self) -> tuple[str, ...]:
        """What Holdfast may rightly call it (`Incident.cause`)."""
        return {
            Kind.KILL_RANK: ("crash",),
            Kind.FREEZE_RANK: ("hang", "stall"),
            Kind.KILL_NODE: ("node_lost",),
            Kind.SAVE: (),
        }[self.kind]

    @property
    def hurt(self) -> tuple[int, ...]:
        """The ranks that are to blame when it is found."""
        if self.kind is Kind.KILL_NODE:
            return tuple(range(self.rank, self.rank + RANKS_PER_NODE))
        return () if self.rank < 0 else (self.rank,)


@dataclass(frozen=True)
class Scenario:
    """A job of `steps` steps and what is done to it."""

    steps: int
    events: tuple[Event, ...]


def scenario() -> Scenario:
    """The demonstration. After the request there is time for two writes before the job's end.

    The ranks hurt are on different nodes, so that no node is blamed twice.
    """
    return Scenario(
        steps=360,
        events=(
            Event(Kind.KILL_RANK, at_step=60, rank=3),
            Event(Kind.FREEZE_RANK, at_step=120, rank=1),
            Event(Kind.SAVE, at_step=160),
            Event(Kind.KILL_NODE, at_step=240, rank=2),
        ),
    )
