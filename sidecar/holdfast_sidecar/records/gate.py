"""Whether a node is fit for an attempt, and what came of putting it to the test."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class GateVerdict:
    """Whether a node is fit for an attempt, by its own sidecar's newest readings.

    state: `fit`, `unfit`, or `unknown` while nothing was read yet.
    """

    state: str
    reasons: list[str] = field(default_factory=list)
    """Why it is not fit, worst first."""
    checked_unix_s: float = 0.0
    """On the node's wall clock."""
    blind: list[str] = field(default_factory=list)
    """Checks that could not be made, as `check: why`: the node counts as fit for these."""
    after: str = ""
    """Incident for which this node was blamed, and after whose end it was checked."""
    gpus: int | None = 0
    """That are there and well; None: the driver does not say."""
    gpus_all: int = 0
    """That should be there."""
    works: bool = False
    """It is unfit, and an attempt would run on it all the same, if not as it should: it is taken in
    where too few others are there."""


@dataclass(frozen=True)
class Exertion:
    """A node was put to the test for some seconds. state: `running`, `done`, `failed`, `refused`.

    `figures` are of the slowest device: matmul_flops_per_s, memory_bytes_per_s,
    all_reduce_bytes_per_s.
    """

    asked_by: str
    """Identifier of the request, or of the incident, that it was made for."""
    state: str
    reason: str = ""
    """What it is at while it runs, else why it failed or was refused."""
    wrong: list[str] = field(default_factory=list)
    """What came out wrong: a sum, a pattern in memory."""
    figures: dict[str, float] = field(default_factory=dict)
    device: str = ""
    """`cpu`, or the model of the GPUs: only what is alike is compared."""
    devices: int = 0
    ended_unix_s: float = 0.0
    took_s: float = 0.0

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes."""
        return self.state != "running"
