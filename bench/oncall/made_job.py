"""A made-up job of any size: nodes with eight ranks each, one of them slow, in its third attempt.

Here is what the store holds of it; what a node sees of itself is in `made_ranks` and
`made_machine`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.oncall.made_past import account, incidents, ledger, standing, tally
from holdfast_sidecar.records.checkpoint import CheckpointOrder, PeerOrder
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import Member, Plan
from holdfast_sidecar.records.reports import AgentReport, NodeReport, RankReport
from holdfast_sidecar.store.protocol import Lease, Section, View

RUN = "llm"
ATTEMPT = 3
EPOCH = 4
RANKS_A_NODE = 8
SLOW_RANK = 5
STEP_S = 0.5
OWN_S = 0.32
"""Of it; the rest is communication."""
PHASES = ("forward", "backward", "communicating", "optimizer", "data")
LASTED_S = 7200.0
"""How old the job is when it is first looked at: an hour at least, as some alerts want."""


@dataclass(frozen=True)
class MadeJob:
    """Which one. `addresses`: where the nodes' sidecars are, by node."""

    ranks: int
    began_unix_s: float
    addresses: Mapping[str, str] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(f"node-{number}" for number in range(-(-self.ranks // RANKS_A_NODE)))

    @property
    def lease(self) -> Lease:
        """The first node leads."""
        return Lease(EPOCH, f"{self.nodes[0]}/x")

    def ranks_of(self, node: str) -> range:
        """Their numbers."""
        first = self.nodes.index(node) * RANKS_A_NODE
        return range(first, min(first + RANKS_A_NODE, self.ranks))

    def step(self, now_unix_s: float) -> int:
        """How far it has come."""
        return int((now_unix_s - self.began_unix_s) / STEP_S)


def plan_of(job: MadeJob) -> Plan:
    """All nodes are members."""
    members = [
        Member(node, "x", number, number * RANKS_A_NODE, len(job.ranks_of(node)))
        for number, node in enumerate(job.nodes)
    ]
    return Plan(
        attempt=ATTEMPT,
        epoch=EPOCH,
        state="running",
        members=members,
        world_size=job.ranks,
        restarts=ATTEMPT,
        began_unix_s=job.began_unix_s,
    )


def own_s(rank: int, now_unix_s: float) -> float:
    """A rank's own work in a step: a little noise that repeats, a third more of the slow one."""
    noise = random.Random(rank * 1_000_003 + int(now_unix_s)).gauss(1.0, 0.015)
    return OWN_S * noise * (1.31 if rank == SLOW_RANK else 1.0)


def reports(job: MadeJob, now_unix_s: float) -> dict[str, NodeReport]:
    """What the nodes tell of themselves."""
    return {node: _report(job, node, now_unix_s) for node in job.nodes}


def _report(job: MadeJob, node: str, now_unix_s: float) -> NodeReport:
    leads = node == job.nodes[0]
    return NodeReport(
        node,
        "x",
        int(now_unix_s * 3),
        ATTEMPT,
        EPOCH,
        attempt=ATTEMPT,
        launcher_alive=True,
        ranks=[_rank_report(job, rank, now_unix_s) for rank in job.ranks_of(node)],
        metrics_address=job.addresses.get(node, ""),
        slow=standing(job.nodes[0], SLOW_RANK, ATTEMPT, now_unix_s) if leads else None,
    )


def _rank_report(job: MadeJob, rank: int, now_unix_s: float) -> RankReport:
    return RankReport(
        rank=rank,
        local_rank=rank % RANKS_A_NODE,
        pid=1000 + rank,
        step=job.step(now_unix_s),
        phase=PHASES[(rank + int(now_unix_s)) % len(PHASES)],
        phase_age_s=0.05,
        step_s=STEP_S,
        own_s=round(own_s(rank, now_unix_s), 6),
        loss=2.5,
        gradient_norm=0.8,
        power_w=600.0 + rank % 50,
        tokens_per_s=2000.0,
        memory_total=85_000_000_000,
        memory_reserved=60_000_000_000 + rank,
    )


def view_of(job: MadeJob, told: Mapping[str, NodeReport], now_unix_s: float) -> View:
    """The store's whole content, as its leader read it."""
    step, began = job.step(now_unix_s), job.began_unix_s
    agents = {node: _agent(node) for node in job.nodes}
    next_one = CheckpointOrder("c9", ATTEMPT, EPOCH, step + 60, "/c/step-c9", "armed", 60.0)
    copied = PeerOrder("p1", ATTEMPT, EPOCH, step, "armed", 9.0, through=step - 2)
    return View(
        job.lease,
        "server",
        {
            Section.PLAN: {"current": encode(plan_of(job))},
            Section.AGENTS: {node: encode(agent) for node, agent in agents.items()},
            Section.NODES: {node: encode(report) for node, report in told.items()},
            Section.INCIDENTS: {i: encode(one) for i, one in incidents(began).items()},
            Section.LEDGER: {i: encode(one) for i, one in ledger(step, now_unix_s).items()},
            Section.ACCOUNT: account(began, now_unix_s, job.ranks, len(job.nodes), ATTEMPT),
            Section.PEER: {"current": encode(copied)},
            Section.CHECKPOINT: {"current": encode(next_one), "tally": encode(tally())},
        },
    )


def _agent(node: str) -> AgentReport:
    return AgentReport(node, "x", "running", ATTEMPT, 1, RANKS_A_NODE, "127.0.0.1", 1, 2)
