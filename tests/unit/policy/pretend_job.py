"""A job whose account is followed: parts of one, and a whole one that runs, tells of its steps and
is treated badly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.unit.controller.simulated_job import SimulatedJob, SimulatedNode
from tests.unit.records.slow_job import line

from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.account import Account, Category, parse_account
from holdfast_sidecar.records.plan import Incident, Member, Plan
from holdfast_sidecar.records.reports import AgentReport, NodeReport, RankReport
from holdfast_sidecar.records.steps import StepLine, spell
from holdfast_sidecar.store.memory_store import MemoryStore
from holdfast_sidecar.store.protocol import Section

MEMBERS = [Member("a", "ia", 0, 0, 1), Member("b", "ib", 1, 1, 1)]
PLAN = Plan(0, 3, "running", MEMBERS, 2, began_unix_s=1000.0)

UNTOLD_STEPS = 3
"""Of an attempt's first steps no line tells."""


def step_line(rank: int, step: int, **given: int) -> StepLine:
    """100 ms a step, 20 of them waiting for data."""
    told = {"rank": rank, "step": step, "stride": 1, "steps": 1, "total": 100_000, "data": 20_000}
    return line(rank)._replace(**{"lost": 0, "compiled": 0, "evaluated": 0, **told, **given})


def rank_report(rank: int, step: int = 0, phase: str = "forward", **given: Any) -> RankReport:
    return RankReport(rank, 0, 9, step, phase, 0.0, 0.1, 0.1, **given)


def node_report(
    node: str, ranks: Sequence[RankReport], attempt: int = 0, steps: Sequence[StepLine] = ()
) -> NodeReport:
    lines = [spell(one) for one in steps]
    return NodeReport(node, f"i{node}", 1, 0, 0, attempt, True, ranks=list(ranks), steps=lines)


def agent(node: str, state: str = "running", attempt: int = 0, **given: Any) -> AgentReport:
    return AgentReport(node, f"i{node}", state, attempt, 1, 1, "", 2, 2, **given)


def cluster_of(
    plan: Plan | None,
    *ranks: RankReport,
    incidents: Sequence[Incident] = (),
    agents: str = "running",
) -> Cluster:
    """Two nodes with a rank each; `ranks` are those that report."""
    attempt = 0 if plan is None else plan.attempt
    seated = {"a": [one for one in ranks if one.rank == 0], "b": [r for r in ranks if r.rank == 1]}
    return Cluster(
        agents={name: agent(name, agents, attempt) for name in "ab"},
        nodes={name: node_report(name, own, attempt) for name, own in seated.items()},
        plan=plan,
        incidents={one.identifier: one for one in incidents},
    )


def account_of(server: Any) -> Account | None:
    """As the store holds it."""
    return parse_account(MemoryStore(server).read().section(Section.ACCOUNT))


class ToldJob(SimulatedJob):
    """A job that tells of its steps, and whose account is looked at after each tick."""

    def __init__(self, folder: Path, **given: Any) -> None:
        super().__init__(folder, **given)
        self.began_s = self.now
        self.seen: Account | None = None

    def add(self, name: str) -> SimulatedNode:
        node = super().add(name)
        node.lines = _lines
        return node

    def tick(self) -> None:
        super().tick()
        self.look()

    def look(self) -> None:
        """In what a leader shows the sum is the wall clock, and nothing ever falls."""
        for node in self.nodes.values():
            orders = node.coordinator.orders()
            if not orders.is_leader or orders.view is None or node.dead:
                continue
            now = parse_account(orders.view.section(Section.ACCOUNT))
            if now is not None:
                self._compare(self.seen, now)
                self.seen = now

    def _compare(self, before: Account | None, now: Account) -> None:
        assert now.total_us == now.at_us - now.began_us
        assert now.pending_us >= 0
        if before is None or before.run != now.run:
            return
        for category in Category:
            assert now.micros.get(category, 0) >= before.micros.get(category, 0), category
            assert now.gpu_micros.get(category, 0) >= before.gpu_micros.get(category, 0)
        assert all(now.costs[name] == cost for name, cost in before.costs.items())

    def seconds(self, category: Category) -> float:
        assert self.seen is not None
        return self.seen.seconds(category)

    def leader(self) -> str:
        """The node that leads."""
        return MemoryStore(self.server).read().lease.candidate.partition("/")[0]

    def depose(self) -> None:
        """Whoever leads gives it up; who is next is as chance will have it."""
        candidate = MemoryStore(self.server).read().lease.candidate
        MemoryStore(self.server).resign(candidate)


def _lines(node: SimulatedNode) -> list[str]:
    if node.plan is None or node.state != "running":
        return []
    newest = int(node.step)
    first = max(node.resumed + UNTOLD_STEPS + 1, newest - 7)
    ranks = [int(name) for name in node.rank_names]
    return [spell(step_line(r, step)) for r in ranks for step in range(first, newest + 1)]


def told_of(cluster: Cluster, *steps: StepLine) -> Cluster:
    """The cluster with these lines in its nodes' reports."""
    nodes = {
        name: replace(
            report,
            steps=[spell(one) for one in steps if one.rank in {rank.rank for rank in report.ranks}],
        )
        for name, report in cluster.nodes.items()
    }
    return replace(cluster, nodes=nodes)
