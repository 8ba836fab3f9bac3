"""How well a job's steps go: what a report of it is made from, live or as a node keeps it."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast_sidecar.records.slowness import SlowStanding


@dataclass(frozen=True)
class RankSteps:
    """One rank's newest steps, and the memory of its device. Sizes in bytes; 0: not known."""

    rank: int
    node: str
    line: str = ""
    """A records.steps.StepLine of a block that most ranks told of; empty: it told nothing of it."""
    memory_allocated: int = 0
    memory_reserved: int = 0
    memory_peak: int = 0
    memory_total: int = 0
    memory_retries: int = 0


@dataclass(frozen=True)
class Losses:
    """Seconds of the whole job, over all attempts of a run or of several."""

    watched_s: float = 0.0
    by_cause: dict[str, float] = field(default_factory=dict)
    by_rank: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Performance:
    """A run's steps as they were last seen."""

    began_unix_s: float
    """When the run began, as its plan has it; 0: not known."""
    world_size: int
    standing: SlowStanding | None
    """None: nobody has judged its steps yet."""
    ranks: list[RankSteps] = field(default_factory=list)
    """All of them, or the slowest and a few to compare with."""
    left_out: int = 0
    """Ranks that are not among them."""
    staying: dict[str, str] = field(default_factory=dict)
    """Who is slow -> why its node is not replaced, where policy would have it."""
