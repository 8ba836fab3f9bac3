"""A job of any size as its leader sees it: eight ranks on a node, one of them slow."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

from tests.unit.export.picture import INCIDENTS, LEDGER
from tests.unit.export.picture import picture as known_picture
from tests.unit.ranks.scene import moment
from tests.unit.records import slow_job

from holdfast_sidecar.export.state import TickState
from holdfast_sidecar.ranks.observation import Ranks
from holdfast_sidecar.records.checkpoint import LedgerEntry
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.findings import Finding
from holdfast_sidecar.records.plan import Member, Plan
from holdfast_sidecar.records.reports import AgentReport, NodeReport, RankReport
from holdfast_sidecar.store.orders import Orders
from holdfast_sidecar.store.protocol import Lease, Section, View

ATTEMPT = 3
PER_NODE = 8
SLOW = 5
PHASES = ("forward", "backward", "communicating", "optimizer", "data")


@dataclasses.dataclass(frozen=True)
class Job:
    """What varies. `names`: how node n is called."""

    ranks: int = 64
    per_node: int = PER_NODE
    slow: int | None = SLOW
    state: str = "running"
    plan: dict[str, Any] = dataclasses.field(default_factory=dict)
    names: str = "node-{}"
    incidents: dict[str, Any] = dataclasses.field(default_factory=lambda: dict(INCIDENTS))
    findings: tuple[Finding, ...] = ()
    leader: str = ""
    waiting: str = ""
    began_unix_s: float = 1_000_000.0
    slow_from_s: float = 0.0
    account: dict[str, str] = dataclasses.field(default_factory=dict)

    def name(self, number: int) -> str:
        return self.names.format(number)

    @property
    def nodes(self) -> int:
        return -(-self.ranks // self.per_node)

    @property
    def leads(self) -> str:
        return self.leader or self.name(0)


def picture(job: Job, now_s: float = 10.0, **orders: Any) -> TickState:
    """As node 0 sees it."""
    reports = {job.name(number): _report(job, number, now_s) for number in range(job.nodes)}
    told = Orders(
        plan=plan_of(job),
        is_leader=job.leads == job.name(0),
        lease=Lease(4, f"{job.leads}/x"),
        store_up=True,
        view=_view(job, reports),
        nodes=reports,
    )
    return dataclasses.replace(
        known_picture(),
        moment=dataclasses.replace(
            moment(now_s), node=job.name(0), now_unix_s=job.began_unix_s + now_s
        ),
        ranks=Ranks(ATTEMPT),
        findings=job.findings,
        orders=dataclasses.replace(told, **orders),
        heartbeats=dict.fromkeys(reports, job.began_unix_s + now_s),
    )


def plan_of(job: Job) -> Plan:
    members = [
        Member(job.name(number), "x", number, number * job.per_node, job.per_node)
        for number in range(job.nodes)
    ]
    return dataclasses.replace(
        Plan(ATTEMPT, 4, job.state, members, job.ranks, restarts=3), **job.plan
    )


def _view(job: Job, reports: dict[str, NodeReport]) -> View:
    agents = {name: AgentReport(name, "x", "running", 3, 1, 1, "h", 1, 2) for name in reports}
    return View(
        Lease(4, f"{job.leads}/x"),
        "server",
        {
            Section.PLAN: {"current": encode(plan_of(job))},
            Section.AGENTS: {name: encode(agent) for name, agent in agents.items()},
            Section.NODES: {name: encode(report) for name, report in reports.items()},
            Section.INCIDENTS: {name: encode(one) for name, one in job.incidents.items()},
            Section.ACCOUNT: job.account,
            Section.LEDGER: {name: encode(entry) for name, entry in _ledger(job).items()},
        },
    )


def _ledger(job: Job) -> dict[str, LedgerEntry]:
    """A checkpoint each minute; the newest is poisoned."""
    return {
        name: dataclasses.replace(
            entry, step=1000 + entry.step, at_unix_s=job.began_unix_s - 60 * number
        )
        for number, (name, entry) in enumerate(reversed(LEDGER.items()))
    }


def _report(job: Job, number: int, now_s: float) -> NodeReport:
    first, name = number * job.per_node, job.name(number)
    ranks = range(first, min(first + job.per_node, job.ranks))
    slow = None
    if name == job.leads:
        one = slow_job.slow(job.slow, node=_home(job), role="") if job.slow is not None else None
        slow = dataclasses.replace(
            slow_job.STANDING, attempt=ATTEMPT, slow=[one] if one is not None else []
        )
    return NodeReport(
        name,
        "x",
        int(now_s * 3),
        ATTEMPT,
        4,
        attempt=ATTEMPT,
        launcher_alive=True,
        ranks=[rank_report(job, rank, now_s) for rank in ranks],
        metrics_address=f"127.0.0.1:{9750 + number}",
        waiting=job.waiting if name == job.leads else "",
        slow=slow,
    )


def _home(job: Job) -> str:
    return job.name((job.slow or 0) // job.per_node)


def rank_report(job: Job, rank: int, now_s: float) -> RankReport:
    """A little noise, that repeats; a third more of one rank."""
    noise = random.Random(rank * 1_000_003 + int(now_s)).gauss(1, 0.015)
    is_slow = rank == job.slow and now_s >= job.slow_from_s
    own_s = 0.08 * noise * (1.31 if is_slow else 1.0)
    return RankReport(
        rank=rank,
        local_rank=rank % job.per_node,
        pid=1000 + rank,
        step=1100 + int(now_s * 7),
        phase=PHASES[(rank + int(now_s)) % len(PHASES)],
        phase_age_s=0.05,
        step_s=0.12,
        own_s=round(own_s, 6),
        power_w=500.0 + rank % 50,
        tokens_per_s=2000.0,
        memory_total=85_000_000_000,
        memory_reserved=60_000_000_000 + rank,
    )
