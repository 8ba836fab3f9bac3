"""What makes a simulated job: its layout, how restless it is, and which faults are planted."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast_sidecar.records.steps import SlowCause

FOREVER = 1 << 30


@dataclass(frozen=True)
class Layout:
    """Rank = (pp * dp_size + dp) * tp_size + tp, as DeviceMesh counts (pp, dp, tp)."""

    dp: int
    tp: int = 1
    pp: int = 1
    ranks_per_node: int = 8

    @property
    def ranks(self) -> int:
        return self.dp * self.tp * self.pp

    @property
    def name(self) -> str:
        return f"dp{self.dp} tp{self.tp} pp{self.pp}"

    def coordinates(self, rank: int) -> dict[str, int]:
        return {
            "pp": rank // (self.dp * self.tp),
            "dp": rank // self.tp % self.dp,
            "tp": rank % self.tp,
        }

    def members(self, dimension: str, rank: int) -> list[int]:
        """Ranks of the group along `dimension` in which `rank` is."""
        mine = self.coordinates(rank)
        others = [d for d in mine if d != dimension]
        return [
            r for r in range(self.ranks) if all(self.coordinates(r)[d] == mine[d] for d in others)
        ]


@dataclass(frozen=True)
class Fault:
    """One trouble; `slowdown` 0.3: its ranks take 30 % of their usual own time more."""

    cause: SlowCause
    ranks: tuple[int, ...]
    slowdown: float
    since: int
    until: int = FOREVER
    """First step that is well again."""
    dimension: str = "dp"
    """Of a slow link: along which its group lies; its ranks are the ends of the link."""
    every: int = 1
    """It comes every so many steps, and is so many times as long."""

    def strikes(self, step: int) -> bool:
        return self.since <= step < self.until and (step - self.since) % self.every == 0


@dataclass(frozen=True)
class Scenario:
    """All that makes a job; `seed` the rest."""

    seed: int
    layout: Layout
    sigma: float = 0.02
    """Of one step's own time, standard deviation as a part of it."""
    tail: float = 4.0
    """Degrees of freedom of Student's t; 0: normal."""
    memory: float = 0.3
    """Correlation of neighbouring steps."""
    hiccups: float = 0.002
    """Chance per rank and step of one that takes up to three times as long."""
    spread: float = 0.005
    """By which machines of one kind differ all their life (standard deviation)."""
    step_us: float = 800_000.0
    """Own time of a usual step."""
    lengths: float = 0.0
    """By which the work of replicas and steps varies (of its logarithm, standard deviation)."""
    tells_work: bool = True
    evaluates_every: int = 0
    saves_every: int = 0
    restarts: tuple[tuple[int, int, int], ...] = ()
    """(rank, step at which it leaves, step at which it is back)"""
    faults: tuple[Fault, ...] = ()
