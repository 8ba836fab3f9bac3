"""How well a job's steps go: what a report of it is made from, live or as a node keeps it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast_sidecar.records.slowness import SlowStanding


@dataclass(frozen=True)
class Point:
    """Where a rank stood when a step had just ended, CLOCK_MONOTONIC."""

    at_s: float
    joules: float
    step: int
    tokens: int


@dataclass(frozen=True)
class RankEnergy:
    """One rank. Its joules count on over restarts, the points are those of one process."""

    pid: int = 0
    start_ticks: int = 0
    joules: float | None = None
    """Since this sidecar began; None: its GPUs, or what they draw, are not known."""
    power_w: float | None = None
    """Average of the last minute."""
    seen_step: int = -1
    """Steps that this process had completed when it was last looked at; -1: not looked at yet."""
    points: tuple[Point, ...] = ()

    @property
    def step_joules(self) -> float | None:
        """Joules for one step, over the latest steps; None before two were seen to end."""
        return self._per(lambda point: point.step)

    @property
    def token_joules(self) -> float | None:
        """Joules of this rank for one of its tokens; None unless it tells them."""
        return self._per(lambda point: point.tokens)

    @property
    def tokens_per_s(self) -> float | None:
        """The pace of the same steps; None unless it tells tokens."""
        if len(self.points) < 2 or not self.points[-1].tokens:
            return None
        first, last = self.points[0], self.points[-1]
        return (last.tokens - first.tokens) / (last.at_s - first.at_s)

    def _per(self, count: Callable[[Point], int]) -> float | None:
        if len(self.points) < 2 or self.joules is None:
            return None
        first, last = self.points[0], self.points[-1]
        done = count(last) - count(first)
        return (last.joules - first.joules) / done if done > 0 else None


UNMETERED = RankEnergy()


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
