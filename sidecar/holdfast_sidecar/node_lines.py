"""A job's nodes as `holdfast nodes` tells of them. Pure, out of two readings of the store."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field

from holdfast_sidecar.components.health_check.checks import Compared, compare
from holdfast_sidecar.config.settings import PolicySettings
from holdfast_sidecar.export.status import NodeStanding, judge
from holdfast_sidecar.policy.budget import Lemon, find_lemons
from holdfast_sidecar.policy.cluster import parse_cluster
from holdfast_sidecar.policy.quarantine import find
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.findings import Finding
from holdfast_sidecar.records.plan import Quarantine
from holdfast_sidecar.records.reports import AgentReport, Exertion, GateVerdict, NodeReport
from holdfast_sidecar.store.protocol import Section, View

AWAY, LEFT, OUTSIDE, SPARE, UNFIT, WAITING = "away", "left", "outside", "spare", "unfit", "waiting"
"""Places of nodes that are not in the attempt."""


@dataclass(frozen=True)
class NodeLine:
    """One node."""

    node: str
    place: str
    """`in attempt` with its node rank, or one of the words above."""
    node_rank: int | None = None
    launcher: bool | None = None
    """Whether it is alive; None: there is none."""
    sidecar: bool | None = None
    ranks: list[int] = field(default_factory=list)
    gate: GateVerdict | None = None
    """None: its sidecar says nothing (any more)."""
    quarantine: Quarantine | None = None
    exertion: Exertion | None = None
    compared: list[Compared] = field(default_factory=list)
    """Its figures beside those of the other nodes."""
    findings: list[Finding] = field(default_factory=list)
    lemon: Lemon | None = None
    """What is held against its machine; None: it was never blamed."""
    has_job_ended: bool = False


def node_lines(
    job: str, before: View, after: View, policy: PolicySettings, now_unix_s: float
) -> list[NodeLine]:
    """Members first, by rank; then the others, by name."""
    standing = judge(job, before, after)
    lines = [*_present(standing.nodes, after), *_away(standing.nodes, after)]
    found = find_lemons(parse_cluster(after).incidents.values(), policy, now_unix_s)
    lemons = {lemon.node: lemon for lemon in found}
    is_over = standing.has_ended
    told = (_as_left(line) if is_over and line.launcher is False else line for line in lines)
    return [
        dataclasses.replace(line, lemon=lemons.get(line.node), has_job_ended=is_over)
        for line in told
    ]


def _as_left(line: NodeLine) -> NodeLine:
    """Once the job has ended, whose launcher is silent has gone with it."""
    return dataclasses.replace(line, place=LEFT) if line.node_rank is not None else line


def _present(nodes: list[NodeStanding], view: View) -> Iterator[NodeLine]:
    cluster = parse_cluster(view)
    outside, has_attempt = cluster.outside(), cluster.plan is not None
    reports = {name: decode(NodeReport, text) for name, text in view.section(Section.NODES).items()}
    tested = {
        name: report.exertion
        for name, report in reports.items()
        if report is not None and report.exertion is not None
    }
    for node in nodes:
        agent = decode(AgentReport, view.section(Section.AGENTS).get(node.node, ""))
        report = reports.get(node.node) if node.sidecar else None
        kept_out = None if agent is None else find(agent, outside)
        verdict = None if report is None else report.gate
        exertion = tested.get(node.node)
        others = [one for name, one in tested.items() if name != node.node]
        yield NodeLine(
            node.node,
            _place(node, kept_out, verdict, has_attempt),
            node.node_rank,
            node.launcher,
            node.sidecar,
            [rank.rank for rank in node.ranks],
            verdict,
            kept_out,
            exertion,
            [] if exertion is None else compare(exertion, others),
            [] if report is None else report.findings,
        )


def _place(
    node: NodeStanding,
    kept_out: Quarantine | None,
    verdict: GateVerdict | None,
    has_attempt: bool,
) -> str:
    if node.node_rank is not None:
        return f"node rank {node.node_rank}"
    if node.state == LEFT:
        return LEFT
    if kept_out is not None:
        return OUTSIDE
    if verdict is not None and verdict.state == "unfit":
        return UNFIT
    if node.launcher is None or node.is_lost:
        return AWAY
    return SPARE if has_attempt else WAITING


def _away(nodes: list[NodeStanding], view: View) -> Iterator[NodeLine]:
    """Those that are kept outside and have gone."""
    here = {node.node for node in nodes}
    for one in parse_cluster(view).outside():
        if one.node not in here:
            yield NodeLine(one.node, AWAY, quarantine=one)
