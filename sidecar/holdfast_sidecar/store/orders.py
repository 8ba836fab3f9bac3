"""What the node's loop tells coordination, and what coordination tells the loop.

Both are immutable and replaced whole, so the two threads share no state but these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast_sidecar.records.checkpoint import (
    AttemptKey,
    CheckpointOrder,
    PeerOrder,
    SavedPart,
    SnapshotOrder,
    SnapshotReport,
    TracedPart,
    TraceOrder,
)
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.collectives import RankTrace
from holdfast_sidecar.records.findings import Finding
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.records.reports import Exertion, GateVerdict, NodeReport, RankReport
from holdfast_sidecar.records.steps import SlownessReport
from holdfast_sidecar.store.protocol import Lease, Section, View


@dataclass(frozen=True)
class LocalState:
    """The node as its own loop sees it now."""

    launcher_alive: bool
    launcher_pid: int
    """0 when no launcher is watched."""
    attempt: int
    """Attempt of the pages that were read; -1: no rank has claimed a page yet."""
    ranks: list[RankReport] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    evidence_for: str = ""
    where_ranks_stood: Mapping[str, str] = field(default_factory=dict)
    """rank -> where its main thread stood, of the incident `evidence_for`."""
    bundles: Mapping[str, str] = field(default_factory=dict)
    """incident -> where this node packed its evidence, as `host:path`."""
    doubts: bool = False
    """Whether a rank here will soon be silent for too long."""
    traces: list[RankTrace] = field(default_factory=list)
    """Where this node's ranks stand in their collectives; only while somebody doubts."""
    saved: SavedPart | None = None
    snapshot: SnapshotReport | None = None
    preempted_by: str = ""
    metrics_address: str = ""
    unserved: str = ""
    """See NodeReport."""
    echo_address: str = ""
    attached: bool = False
    """Somebody else launched the ranks."""
    hooks: Mapping[str, str] = field(default_factory=dict)
    """See NodeReport."""
    gate: GateVerdict | None = None
    exertion: Exertion | None = None
    steps: list[str] = field(default_factory=list)
    """See NodeReport, as for `slow`."""
    slow: SlownessReport | None = None
    traced: TracedPart | None = None
    """See NodeReport."""


@dataclass(frozen=True)
class Orders:
    """What coordination last agreed on, as far as this node may obey it (stale fences are gone)."""

    plan: Plan | None = None
    checkpoint: CheckpointOrder | None = None
    snapshot: SnapshotOrder | None = None
    peer: PeerOrder | None = None
    trace: TraceOrder | None = None
    key: AttemptKey | None = None
    """Of the plan's attempt; kept out of `view`, which is written down and shown."""
    skipped: str = ""
    """On the leading node: the checkpoint that is still being written though the next was due."""
    candidate: str = ""
    """This sidecar, as a candidate for the lease."""
    is_leader: bool = False
    leads_until_s: float = math.inf
    """Monotonic: from then on another one may lead, unless the store has been asked again."""
    lease: Lease = field(default_factory=lambda: Lease(0, ""))
    store_up: bool = False
    """False while Redis is away: nothing may be killed then."""
    view: View | None = None
    """The newest reading, for metrics; kept while Redis is away."""
    nodes: Mapping[str, NodeReport] | None = None
    """The reports in `view`, where they are parsed already; None: they are not."""
    stale: frozenset[str] = frozenset()
    """Nodes whose sidecar had been silent for too long when the store last answered: what their
    reports in `view` say of their ranks is old."""
    unwritten: str = ""
    """Why this node's fence could not be written down; empty: it could."""
    is_alone: bool = False
    """Whether the job never has another node than this one: see `Cluster.is_alone`."""
    absent: tuple[Finding, ...] = ()
    """On the leading node: members of the attempt, or their sidecars, that are gone."""

    def node_report(self, node: str) -> NodeReport | None:
        """What this node's sidecar last reported, read from `view` only where it has to be."""
        if self.nodes is not None:
            return self.nodes.get(node)
        texts = {} if self.view is None else self.view.section(Section.NODES)
        return decode(NodeReport, texts.get(node, ""))
