"""The job at one moment, whole: what the page at `/` and `holdfast top` show. Plain data.

Times are Unix seconds of the node that tells. Every text in here may come from anybody's script,
host name or exception: whoever shows it shows it as text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

VERSION = 1
"""Counted up when a field changes its meaning; new fields need no new version."""

COLUMNS = 120
"""Of the heat map, at most: as many as a narrow window has room for, and a terminal can halve."""

RANKS = 1024
"""Rows of the heat map, at most: as many as a tall screen has pixels for."""

INCIDENTS = 50
"""The newest that are told; all of them has `holdfast incidents`."""


@dataclass(frozen=True)
class GpuView:
    """A rank's GPU, as the driver said last; None: it doesn't say, or another node has it."""

    busy: float | None = None
    """Share of the time, 0 to 1."""
    temperature_c: float | None = None
    clock_hz: float | None = None
    memory_used_bytes: float | None = None
    memory_size_bytes: float | None = None
    power_w: float | None = None


@dataclass(frozen=True)
class RankView:
    """A rank of the attempt under way."""

    rank: int = -1
    node: str = ""
    step: int = 0
    phase: str = ""
    busy: str = ""
    """What its script says that it is busy with; empty: it says nothing."""
    phase_since_unix_s: float = 0.0
    alive: bool = True
    step_s: float | None = None
    own_s: float | None = None
    """Own work in a step, waiting for others removed."""
    wait_s: float | None = None
    slowdown: float | None = None
    """0.3: it is called 30 % slower than its peers; None: nobody calls it slow."""
    cause: str = ""
    """Why it is slow; empty: it isn't, or nobody knows."""
    gpu: GpuView | None = None
    silence: str = ""
    """Why all of this is as old as `heard_unix_s`: `lost` (with its node, so it is dead), `silent`
    (nobody on its node tells of it), `old` (Redis is away); empty: it is heard."""
    heard_unix_s: float | None = None
    """When it was heard last; None: now."""


@dataclass(frozen=True)
class NodeView:
    """A node that has a place in the job, or would take one."""

    node: str = ""
    is_leader: bool = False
    heartbeat_unix_s: float | None = None
    """When its heartbeat was last seen to move; None: not seen yet."""
    state: str = ""
    """`member`, `spare`, `outside`, `lost`, `unattended` (no sidecar), `silent` (nothing is heard
    of it, and nobody said why yet), `left`, `attached`."""
    ranks: list[int] = field(default_factory=list)
    findings: int = 0


@dataclass(frozen=True)
class Heat:
    """Ranks x time: whose own work took longer than that of its peers, and what everyone did."""

    columns: list[float] = field(default_factory=list)
    """When each column ends, oldest first."""
    steps: list[int | None] = field(default_factory=list)
    """The job's step at the end of each column; None: not known."""
    rows: dict[int, list[float | None]] = field(default_factory=dict)
    """rank -> of each column its own time against the median of its role: 1.5 is half as long
    again; None: it told of no step."""
    phases: dict[int, list[int | None]] = field(default_factory=dict)
    """rank -> its phase at the end of each column, by its place in `phase_names`."""
    phase_names: list[str] = field(default_factory=list)
    ranks_per_row: int = 1
    """In jobs of more ranks than RANKS a row stands for so many neighbours, the first of which
    names it: the slowest of them counts."""


@dataclass(frozen=True)
class IncidentView:
    """A failure, from first finding to first new step. 0: that did not happen yet."""

    identifier: str = ""
    cause: str = ""
    node: str = ""
    ranks: list[int] = field(default_factory=list)
    since_unix_s: float = 0.0
    detected_unix_s: float = 0.0
    recovered_unix_s: float = 0.0
    decided: str = ""
    is_over: bool = False
    """Recovered, passed by itself, or the job was stopped for it."""
    lost_s: float | None = None
    lost_steps: int | None = None
    title: str = ""
    """All of it in one sentence."""
    story: list[str] = field(default_factory=list)
    """Told in lines, oldest first."""


@dataclass(frozen=True)
class FindingView:
    """Something that was found and has not passed."""

    kind: str = ""
    node: str = ""
    rank: int | None = None
    """None: it is about the node."""
    since_unix_s: float = 0.0
    acts: bool = False
    """Whether something is done about it."""
    words: str = ""


@dataclass(frozen=True)
class SlowView:
    """A rank that is slow, and what to do."""

    rank: int = -1
    node: str = ""
    percent: float = 0.0
    """30: so much slower than its peers."""
    since_step: int = 0
    cause: str = ""
    why: str = ""
    """The cause in words."""
    confidence: float = 0.0
    advice: str = ""
    gain: float = 0.0
    """0.18: without it the job would be 18 % faster."""


@dataclass(frozen=True)
class CheckpointView:
    """What the job could go back to."""

    durable_step: int | None = None
    durable_unix_s: float | None = None
    snapshot_step: int | None = None
    """The newest that every rank holds in memory."""
    interval_s: float | None = None
    """How often one is made; None: not known, or only when somebody asks."""
    writing_step: int | None = None
    """The one that is being made; None: none is."""
    writing_share: float | None = None
    """How much of it is written, 0 to 1."""


@dataclass(frozen=True)
class LiveView:
    """The job, as the sidecar of `node` knows it. What it does not know is None or empty."""

    version: int = VERSION
    run: str = ""
    now_unix_s: float = 0.0
    node: str = ""
    """Who tells."""
    is_leader: bool = False
    leader_node: str = ""
    leader_address: str = ""
    """Where the leader serves its page, host:port, `https://` before it where it has to be spoken;
    empty: not known."""
    store_up: bool = True
    store_away_since_unix_s: float | None = None
    state: str = ""
    """`waiting`, `running`, `evidence`, `ended`, `done`, `stopped`; empty: not known."""
    light: str = ""
    """`green`, `yellow`, `red`, and `grey`: over, or nothing to judge yet."""
    headline: str = ""
    """What is wrong, in one sentence; else that nothing is."""
    warnings: list[str] = field(default_factory=list)
    """What is wrong besides."""
    waits: str = ""
    """Why nothing goes on; empty while it does."""
    attempt: int | None = None
    world_size: int = 0
    step: int | None = None
    step_s: float | None = None
    tokens_per_s: float | None = None
    mfu: float | None = None
    restarts: int = 0
    paused_by: str = ""
    message: str = ""
    """Of the plan: why the job ended as it did."""
    account: dict[str, float] = field(default_factory=dict)
    """Category -> seconds of wall-clock time; empty until known."""
    lost_s: float | None = None
    goodput: float | None = None
    ettr: float | None = None
    ranks: list[RankView] = field(default_factory=list)
    nodes: list[NodeView] = field(default_factory=list)
    heat: Heat = field(default_factory=Heat)
    incidents: list[IncidentView] = field(default_factory=list)
    """Newest first."""
    findings: list[FindingView] = field(default_factory=list)
    slow: list[SlowView] = field(default_factory=list)
    checkpoint: CheckpointView = field(default_factory=CheckpointView)

    @property
    def is_over(self) -> bool:
        """Whether nothing more happens in this run."""
        return self.state in ("done", "stopped")

    @property
    def open_incidents(self) -> Sequence[IncidentView]:
        """Those that are not over."""
        return [one for one in self.incidents if not one.is_over]

    @property
    def by_rank(self) -> Mapping[int, RankView]:
        """The ranks by number."""
        return {one.rank: one for one in self.ranks}


# How slow a cell of the heat map is, in one of ninety levels that a character of its own tells.
#
# A level is two percent: finer than what anybody sees of a colour, or can say of one step.

LEVELS = 90

LOWEST = 0.7
"""A rank that takes less of the time than this has nothing to do; how little tells nobody more."""

STEP = 1.02
"""So that the highest level is four times the median: slower than that is a rank that stands."""

NOTHING = 0
"""In place of a level, and of a phase: nothing was told."""

_FIRST, _BACKSLASH = 0x23, 0x5C
"""From `#` on, but for the backslash, no printable character needs escaping in JSON."""

ALPHABET = "".join(chr(code) for code in range(_FIRST, 0x7F) if code != _BACKSLASH)
"""A character for nothing, and one for each level."""

_TO_WIRE = bytes(ord(ALPHABET[min(at, len(ALPHABET) - 1)]) for at in range(256))
_FROM_WIRE = {sign: at for at, sign in enumerate(ALPHABET)}


def level_of(ratio: float) -> int:
    """The level, from 1 on; what is beyond an end stands at that end."""
    if not ratio > LOWEST:
        return 1
    return 1 + round(min(LEVELS - 1.0, math.log(ratio / LOWEST) / math.log(STEP)))


RATIOS: tuple[float | None, ...] = (
    None,
    *(round(LOWEST * STEP**at, 3) for at in range(LEVELS)),
)
"""What each level stands for; None for NOTHING."""

_KNOWN: dict[float | None, int] = {ratio: level for level, ratio in enumerate(RATIOS)}


def levels_of(ratios: Iterable[float | None]) -> list[int]:
    """The same of many: most stood for a level before, which need not be worked out again."""
    known = _KNOWN
    return [known[one] if one in known else level_of(one or 0.0) for one in ratios]


def spell(levels: Iterable[int]) -> str:
    """Levels, or other numbers as small, as a text of as many characters."""
    return bytes(levels).translate(_TO_WIRE).decode()


def parse(text: str) -> list[int]:
    """The same back; a sign that is none of ours tells nothing."""
    return [_FROM_WIRE.get(sign, NOTHING) for sign in text]
