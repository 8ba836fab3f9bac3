"""What a sidecar says of its node: the ranks, what was found, what it has and did."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast_sidecar.collective_trace import RankTrace
from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.findings import Finding
from holdfast_sidecar.records.checkpoint import SavedPart
from holdfast_sidecar.records.gate import Exertion, GateVerdict
from holdfast_sidecar.records.rank import RankReport
from holdfast_sidecar.records.slowness import SlowStanding
from holdfast_sidecar.records.snapshot import SnapshotReport
from holdfast_sidecar.records.trace import TracedPart


@dataclass(frozen=True)
class ProbeHealth:
    """How a probe fares. Times are monotonic seconds."""

    name: str
    is_up: bool
    failures: int
    duration_s: float
    error: str = ""
    failing_since_s: float = 0.0


@dataclass(frozen=True)
class NodeReport:
    """A sidecar about its node."""

    node: str
    incarnation: str
    beat: int
    floor_attempt: int
    """The highest attempt this node ever obeyed, from its disk."""
    floor_epoch: int
    """The highest leader's epoch this node ever obeyed or saw granted."""
    floor_leader: str = field(default="", kw_only=True)
    """Who led in that epoch as this node saw it; empty: not known any more."""
    attempt: int
    launcher_alive: bool
    ranks: list[RankReport] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    doubts: bool = False
    """Whether a rank here will soon be silent for too long: every node asks its own, then."""
    traces: list[RankTrace] = field(default_factory=list)
    """Where its ranks stand in their collectives; only while some node doubts."""
    evidence_for: str = ""
    """Incident whose evidence this node has finished collecting."""
    where_ranks_stood: dict[str, str] = field(default_factory=dict)
    """rank -> where its main thread stood, from that evidence."""
    bundles: dict[str, str] = field(default_factory=dict)
    """incident -> where this node packed what it kept of it, as `host:path`; the newest few."""
    saved: SavedPart | None = None
    metrics_address: str = ""
    unserved: str = ""
    """Why it serves neither metrics nor a page, and how to mend it; empty: it does."""
    echo_address: str = ""
    """Where this sidecar answers round-trip packets, host:port (UDP); empty: nowhere."""
    mode: str = "act"
    modes: dict[str, str] = field(default_factory=dict)
    """Fault -> what may be done about it here, where that is not `mode`."""
    pid: int = 0
    launcher_pid: int = 0
    """Launcher this sidecar watches; `launcher_alive` says nothing about any other."""
    version: str = ""
    waiting: str = ""
    """Why the leader, if it is this sidecar, takes no step yet; empty while it need not wait."""
    staying: dict[str, str] = field(default_factory=dict)
    """From the leader alone: who is slow -> why its node is not replaced."""
    snapshot: SnapshotReport | None = None
    preempted_by: str = ""
    """Why this node will soon be taken away (SIGTERM, a time limit); empty: it won't."""
    attached: bool = False
    """Somebody else launched the ranks; they are only watched."""
    checkpoint: CheckpointSettings | None = None
    """How checkpoints are made, from the leader alone: a command may run with other settings."""
    hooks: dict[str, str] = field(default_factory=dict)
    """Key of a HookRun -> its outcome, of those that this sidecar ran; the newest few."""
    host: str = ""
    """What the machine calls itself; two machines may have the same name."""
    boot: str = ""
    """Id that the kernel gave itself at its start; empty: it can't be read."""
    gate: GateVerdict | None = None
    exertion: Exertion | None = None
    """The newest test that this node was put to."""
    steps: list[str] = field(default_factory=list)
    """What its ranks' latest steps were like, several lines a rank; see `records.steps`."""
    traced: TracedPart | None = None
    """What became of the trace that is ordered, on this node; None: none is, or not here."""
    slow: SlowStanding | None = None
    """Who is slow and why: from the leader alone, and of its own ranks while the store is away."""

    @property
    def candidate(self) -> str:
        """This sidecar as a candidate for the lease."""
        return f"{self.node}/{self.incarnation}"
