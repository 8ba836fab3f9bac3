"""What a live view is made from: what the store held when it was last read, and what this node sees
by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from holdfast_sidecar.export.live.view import RankView
from holdfast_sidecar.export.state import TickState
from holdfast_sidecar.export.status import attached_plan
from holdfast_sidecar.performance.summary import heard
from holdfast_sidecar.policy.cluster import Cluster, parse_cluster
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.plan import TERMINAL, Plan
from holdfast_sidecar.records.reports import NodeReport
from holdfast_sidecar.records.steps import SlownessReport
from holdfast_sidecar.store.protocol import Lease, Section, View

# Nodes of which nothing is heard: what they said last is not what they do now.

LOST, SILENT, OLD = "lost", "silent", "old"

PATIENCE_S = 2.2
"""Twice `sidecar.node_timeout_s`: the leader calls a node lost sooner, so nobody's ranks look dead
here of whom it knows better."""

GONE = (Kind.NODE_LOST, Kind.SIDECAR_LOST)


@dataclass(frozen=True)
class Silence:
    """Of one node."""

    kind: str
    """`lost` with all its ranks; `silent`: nobody there tells of them; `old`: Redis is away."""
    since_unix_s: float


@dataclass(frozen=True)
class Reachability:
    """What there is to judge by who is heard."""

    now_unix_s: float
    own: str
    """The node that listens: it needs no Redis to know of its own ranks."""
    heartbeats: Mapping[str, float]
    findings: Iterable[Finding] = ()
    store_up: bool = True
    away_since_unix_s: float | None = None
    patience_s: float = PATIENCE_S


def silences(nodes: Iterable[str], heard: Reachability) -> dict[str, Silence]:
    """Those of these nodes that are not heard."""
    gone = {one.node: one for one in heard.findings if one.kind in GONE}
    told = {node: _silence(node, heard, gone.get(node)) for node in nodes if node != heard.own}
    return {node: one for node, one in told.items() if one is not None}


def _silence(node: str, heard: Reachability, gone: Finding | None) -> Silence | None:
    at_unix_s = heard.heartbeats.get(node)
    if at_unix_s is not None and heard.now_unix_s - at_unix_s < heard.patience_s:
        return None if heard.store_up else Silence(OLD, at_unix_s)
    if gone is not None:
        since_unix_s = gone.since_unix_s if at_unix_s is None else at_unix_s
        return Silence(LOST if gone.kind is Kind.NODE_LOST else SILENT, since_unix_s)
    if not heard.store_up:
        away_unix_s = heard.away_since_unix_s
        known = heard.now_unix_s if away_unix_s is None else away_unix_s
        return Silence(OLD, known if at_unix_s is None else at_unix_s)
    return None if at_unix_s is None else Silence(SILENT, at_unix_s)


@dataclass(frozen=True)
class LiveContext:
    """One job at one moment."""

    run: str
    now_unix_s: float
    view: View | None
    """None: the store was never read."""
    node: str = ""
    """Who looks; empty: nobody's sidecar."""
    is_leader: bool = False
    store_up: bool = True
    store_away_since_unix_s: float | None = None
    heartbeats: Mapping[str, float] = field(default_factory=dict)
    """Node -> when its heartbeat was last seen to move; a node that is missing was not watched."""
    own_ranks: Sequence[RankView] = ()
    """As they are seen here, whatever the store says."""
    own_findings: Sequence[Finding] = ()
    reports: Mapping[str, NodeReport] | None = None
    """Those in `view` where they are parsed already."""
    picture: TickState | None = None
    """All else that this node knows."""
    patience_s: float = PATIENCE_S
    """After so long without a word a node is silent."""

    @cached_property
    def cluster(self) -> Cluster:
        """The store's view, parsed."""
        if self.view is None:
            return Cluster()
        known = self.reports or {}
        texts = self.view.section(Section.NODES)
        by_text = {text: known[node] for node, text in texts.items() if node in known}
        return parse_cluster(self.view, by_text.get)

    @cached_property
    def plan(self) -> Plan | None:
        """The plan, or what stands in its place in a job that somebody else launched."""
        if self.view is None or self.cluster.plan is not None:
            return self.cluster.plan
        return attached_plan(self.view)

    @cached_property
    def silences(self) -> dict[str, Silence]:
        """The nodes that are not heard; of a job that is over nobody is waited for."""
        if self.is_over:
            return {}
        heard = Reachability(
            self.now_unix_s,
            self.node,
            self.heartbeats,
            self.findings,
            self.store_up,
            self.store_away_since_unix_s,
            self.patience_s,
        )
        return silences(self.cluster.nodes, heard)

    @property
    def is_over(self) -> bool:
        """Whether nothing more happens in this run."""
        return self.plan is not None and self.plan.state in TERMINAL

    @property
    def lease(self) -> Lease:
        """Who leads, as the store last had it."""
        return Lease(0, "") if self.view is None else self.view.lease

    @property
    def leader_node(self) -> str:
        """The node whose sidecar leads; empty: nobody's does, or it is not known."""
        return self.lease.candidate.rpartition("/")[0]

    @property
    def leader(self) -> NodeReport | None:
        """What the leader's sidecar says."""
        report = self.cluster.nodes.get(self.leader_node)
        return report if report is not None and report.candidate == self.lease.candidate else None

    @property
    def waiting(self) -> str:
        """Why the leader takes no step yet."""
        return "" if self.leader is None else self.leader.waiting

    @cached_property
    def standing(self) -> SlownessReport | None:
        """Who is slow, as the leader last judged the attempt under way; None: it has not, or the
        job is over."""
        if self.plan is None or self.is_over:
            return None
        found = heard(self.cluster.nodes.values(), self.lease.candidate)
        return found if found is not None and found.attempt == self.plan.attempt else None

    @cached_property
    def findings(self) -> list[Finding]:
        """What every node found, this one's as of now."""
        if self.is_over:
            return []
        others = [
            finding
            for name, report in sorted(self.cluster.nodes.items())
            if name != self.node
            for finding in report.findings
        ]
        return [*self.own_findings, *others]
