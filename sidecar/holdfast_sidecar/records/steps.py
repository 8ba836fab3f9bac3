"""What a sidecar says of one rank's latest steps, short enough to be told of thousands of ranks.

A line covers one block of steps: `stride` of them, a power of two, ending at a multiple of it, so
that the lines of all ranks cover the same steps.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from holdfast.contract.page import GROUPS_TIMED


def parse_groups(told: list[str]) -> tuple[ProcessGroup | None, ...]:
    """Process groups as a report tells them, by their slot; None: that slot has none."""
    groups = [_parse_group(text) for text in told[:GROUPS_TIMED]]
    return (*groups, *[None] * (GROUPS_TIMED - len(groups)))


def _parse_group(text: str) -> ProcessGroup | None:
    """A title may have a stroke in it, the others have none."""
    front, _, size = text.rpartition("/")
    title, _, digest = front.rpartition("/")
    return ProcessGroup(title, digest, int(size)) if digest and size.isdecimal() else None


@dataclass(frozen=True)
class ProcessGroup:
    """A process group as all its members tell it alike."""

    title: str
    """What torch calls its purpose: `default_pg`, `mesh_dp`; may be empty."""
    digest: str
    """Of its members: ranks that tell the same one are in it together."""
    size: int


class StepLine(NamedTuple):
    """Means over the ordinary steps of a block, microseconds unless a name says otherwise.

    Ordinary are steps in which nothing was saved, evaluated or compiled, and whose parts were
    measured; `steps` of 0 says that the block had none. Its text is all fields, separated by
    blanks; a newer writer may have added some at the end.
    """

    rank: int
    step: int
    """The block's last step."""
    stride: int
    """Steps of the block."""
    steps: int
    """Ordinary ones among them."""
    total: int
    data: int
    transfer: int
    forward: int
    backward: int
    """Own work if `waits_seen`; else with what was waited for others in it."""
    communicating: int
    optimizer: int
    other: int
    waits_seen: int
    """1: `backward` is own work in all of the steps."""
    collector: int
    """Of the parts: Python's garbage collector."""
    overlapped: int
    wait_1: int
    """Of communicating: in the rank's first process group. 0 where it has none."""
    wait_2: int
    wait_3: int
    wait_4: int
    tokens: int
    """Work of a step; 0: not known."""
    squares: int
    """Sum of the squares of its sequences' lengths; 0: not known."""
    work_reported: int
    """1: by the script itself; 0: as seen in its batches."""
    lost: int
    """Saving, evaluating and compiling, per step over all steps of the block."""
    compiled: int
    """Steps of the block in which something was compiled."""
    cpu_permille: int
    """CPU time of the process, thousandths of one core; 0: not known."""
    queued_permille: int
    """Of the time: its main thread was ready to run, and no CPU was free for it."""
    throttled_permille: int
    """Of the time: its cgroup's quota was used up."""
    faults_per_s: int
    """Pages that had to be read from storage."""
    storage_permille: int
    """Of the time: its node's tasks waited for storage (pressure stall, some)."""
    clock_permille: int
    """Its GPU's clock against what it could be; 0: it has none, or it is not known."""
    evaluated: int
    """Of lost: evaluating."""

    @property
    def own_us(self) -> int:
        """Its own work in a step, waiting removed."""
        own = self.data + self.transfer + self.forward + self.optimizer + self.other
        return own + (self.backward if self.waits_seen else 0)

    @property
    def waits(self) -> tuple[int, int, int, int]:
        """What it waited in each of its first process groups."""
        return (self.wait_1, self.wait_2, self.wait_3, self.wait_4)


FIELDS = len(StepLine._fields)

LARGEST = 1 << 64
"""Of all numbers together, which is the cheapest to ask: a page's words have 64 bits, so that what
is beyond was said by no rank, and a float may not hold it."""


def spell(line: StepLine) -> str:
    """The line as it stands in the store."""
    return " ".join(map(str, line))


def parse(text: str) -> StepLine | None:
    """A line from its text; None when it is none."""
    try:
        numbers = list(map(int, text.split()))
    except ValueError:
        return None
    if len(numbers) < FIELDS or abs(sum(numbers)) > LARGEST:
        return None
    return StepLine(*numbers[:FIELDS])


_PLAIN = b"0123456789- "
"""All that a line is written with. int() and JSON's scanner take more, each something else."""


def parse_all(texts: Sequence[str]) -> list[StepLine]:
    """Those of many texts that are lines, in one pass: JSON's scanner reads them at half the price
    of number by number. What it would read otherwise than `parse` is left to that."""
    joined = "],[".join(texts).replace(" ", ",")
    try:
        if " ".join(texts).encode().translate(None, _PLAIN):
            raise ValueError
        rows = json.loads(f"[[{joined}]]")
    except ValueError:
        return [line for text in texts if (line := parse(text)) is not None]
    # As StepLine._make, which would count the fields once more.
    return [
        tuple.__new__(StepLine, row[:FIELDS])
        for row in rows
        if len(row) >= FIELDS and abs(sum(row)) <= LARGEST
    ]


# Who is slow and why, what it costs, and how efficient the job is: told by the leading node.


class SlowCause(str, Enum):
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
    cause: SlowCause
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
class PaceChange:
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
class SlownessReport:
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
    lost_by_rank: dict[str, float] = field(default_factory=dict)
    """`rank on node` -> the same; the dearest few."""
    charged_s: dict[str, float] = field(default_factory=dict)
    """Cause -> seconds as they were put down to it at the time, which only grow; in `lost_s` what
    turns out to have another cause goes with it."""
    efficiency: Efficiency | None = None
    change: PaceChange | None = None
    """None: all in all its steps take as long as they did."""


# Where a rank says it stands in the job.


@dataclass(frozen=True)
class RankPlacement:
    """As its report carries it: see `records.reports`."""

    layout: str = ""
    groups: tuple[str, ...] = ()


NOWHERE = RankPlacement()
"""It says nothing."""
