"""Who is slow and why, what it costs, and how efficient the job is: told by the leading node."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Cause(str, Enum):
    """Why somebody is slow."""

    GPU_CLOCK = "gpu_clock"  # heat or a brake holds its clock down
    GPU_POWER = "gpu_power"  # a power cap does
    GPU_LINK = "gpu_link"  # PCIe or NVLink narrower or slower than it could be
    GPU_SHARED = "gpu_shared"  # another process computes on the same GPU
    COMPUTE = "compute"  # forward, backward or optimizer are slow and nothing else explains it
    CPU_QUOTA = "cpu_quota"  # the cgroup's quota is used up
    CPU_CONTENTION = "cpu_contention"  # others want the same cores
    MEMORY_PRESSURE = "memory_pressure"  # host memory is short: pages are read again and again
    COLLECTOR = "collector"  # Python's garbage collector
    DATA_LOADING = "data_loading"  # batches come late
    STORAGE = "storage"  # what they are read from is slow
    LINK = "link"  # a network link or card
    UNEVEN_WORK = "uneven_work"  # it was given more to do
    PIPELINE = "pipeline"  # its stage has more to do than the others
    RECOMPILATION = "recompilation"  # torch.compile starts over again and again
    EVALUATION = "evaluation"  # it evaluates while the others wait
    SAVING = "saving"  # it saves while the others wait
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Slowness:
    """One who is slow. Shares are parts of one; `slowdown` 0.3 is 30 % slower than its peers."""

    ranks: list[int]
    node: str
    """Empty: it is about more than one node, or none in particular."""
    role: str
    """Whom it was compared with; empty: with all ranks. `stage 1`: that stage with the others."""
    cause: Cause
    part: str
    """Where the time goes: data, transfer, forward, backward, optimizer, communicating, other; or
    evaluating, saving, compiling."""
    slowdown: float
    confidence: float
    """That it is this one; of why it is, `cause_confidence`."""
    since_step: int
    since_unix_s: float
    is_persistent: bool
    """It lasts; else it came and may pass."""
    gain: float
    """So much faster the job would be without it: 0.18 is 18 %."""
    lost_s: float
    """Seconds of the whole job that it cost so far."""
    evidence: list[str] = field(default_factory=list)
    advice: str = ""
    group: str = ""
    """Of a slow link: the process group in which it shows."""
    cause_confidence: float = 0.0
    is_guess: bool = False
    """Nothing was measured that explains it: the cause is where the time goes."""
    is_asleep: bool = False
    """Its process was on no CPU meanwhile: it slept or waited for something outside."""
    is_host_only: bool = False
    """It computes on no GPU or the like, which could be slow without a sign."""

    @property
    def key(self) -> tuple[str, tuple[int, ...], str]:
        """Same key: the same trouble, seen again."""
        return (self.node, tuple(self.ranks), self.role)


@dataclass(frozen=True)
class WhatIf:
    """How much faster the job would be: `gain` 0.18 is 18 %."""

    what: str
    """`rank 5`, `stage 2`, `even stages`, `even work`, `data_loading`."""
    kind: str
    """rank, stage, stages, work, cause."""
    gain: float
    lost_s: float
    """Seconds of the whole job that it cost so far."""


@dataclass(frozen=True)
class Efficiency:
    """How well the machine is used, over the newest stretch of steps, from `from_step` on. None:
    not known, and `unknown` says why.

    Shares are parts of one.
    """

    mfu: float | None = None
    """Model FLOPs utilisation: of what the devices could do, what the model needed."""
    hfu: float | None = None
    """The same with what activation checkpointing computes again."""
    tokens_per_s: float | None = None
    communication_share: float | None = None
    """Of a step, exposed: the middle rank waited in collectives and messages."""
    data_share: float | None = None
    bubble_share: float | None = None
    """Of a step: pipeline stages had nothing to do."""
    pace: float | None = None
    """Throughput of the newest steps against that of the first ones after the warm-up."""
    step_s: float | None = None
    """What a step took in the mean, saving and evaluating in it."""
    usual_step_s: float | None = None
    """What the middle one took."""
    from_step: int = 0
    parts_us: dict[str, float] = field(default_factory=dict)
    """Part of a step (a field of a StepLine) -> what the middle rank spent in it, in the mean."""
    most_us: dict[str, float] = field(default_factory=dict)
    """Part -> what that rank spent that spent most."""
    most_rank: dict[str, int] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Change:
    """All ranks take longer than they did, by their own work: the job's own change, nobody's."""

    since_step: int
    ratio: float
    """1.8: so many times as long."""
    before_s: float
    """Own time of a step, mean over the ranks."""
    now_s: float
    part: str
    """Where most of it goes."""


@dataclass(frozen=True)
class SlowStanding:
    """How the job stands, as the leader last judged it."""

    attempt: int
    step: int
    """Up to which it was judged."""
    judged_ranks: int
    at_unix_s: float
    slow: list[Slowness] = field(default_factory=list)
    what_ifs: list[WhatIf] = field(default_factory=list)
    """Largest gain first."""
    unjudged: list[str] = field(default_factory=list)
    """What can't be judged, and why: one line each."""
    unjudged_ranks: int = 0
    """Of `judged_ranks` those of which nothing can be said."""
    watched_s: float = 0.0
    """Wall time of the steps that were judged, over all attempts."""
    lost_s: dict[str, float] = field(default_factory=dict)
    """Cause -> seconds of the whole job that it cost, over all attempts."""
    counted_s: dict[str, float] = field(default_factory=dict)
    """Cause -> the most that `lost_s` ever said: for counters, which never fall."""
    lost_by_rank: dict[str, float] = field(default_factory=dict)
    """`rank on node` -> as `lost_s`; the dearest few."""
    efficiency: Efficiency | None = None
    change: Change | None = None
    """None: all in all its steps take as long as they did."""
