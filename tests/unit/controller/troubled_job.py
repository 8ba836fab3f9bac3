"""A simulated job whose leader can be struck at any write of a decision, and what must hold then.

A stroke comes before or after the n-th order that a leader writes: its sidecar dies, its node dies,
or the server goes away, forgets, or fails over. Launchers live on, and start sidecars anew.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.unit.controller.simulated_job import SimulatedJob, SimulatedNode

from holdfast_sidecar.controller.coordinator import Coordinator, NodeIdentity
from holdfast_sidecar.controller.fence import FenceFile
from holdfast_sidecar.controller.leader import Leadership
from holdfast_sidecar.policy.cluster import parse_cluster
from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.plan import Incident, Plan
from holdfast_sidecar.store.memory_store import MemoryServer, MemoryStore
from holdfast_sidecar.store.protocol import Lease, Section, StoreUnavailable

RESTART_S = 0.8
"""From a sidecar's death until its launcher has another one running."""

STAGES = ("running", "evidence", "ended", "done", "stopped")


class Died(BaseException):
    """This sidecar is dead: nothing of it may run on."""


@dataclass
class Stroke:
    """What happens at the n-th order (from 1), before or after it is written."""

    at: int
    when: str
    strike: Callable[[TroubledJob, str], None]
    count: int = 0
    is_over: bool = False


@dataclass(frozen=True)
class Written:
    """An order as it went through."""

    lease: Lease
    section: Section
    value: str | None
    at: float


class Line:
    """A node's way to the server, which may be cut, or lead to another one."""

    def __init__(self, job: TroubledJob, node: str) -> None:
        self._job = job
        self._node = node

    def __getattr__(self, name: str) -> Any:
        if self._job.now < self._job.cut_until.get(self._node, 0.0):
            raise StoreUnavailable("the line is cut")
        return getattr(self._job.servers.get(self._node, self._job.server), name)


class StruckStore(MemoryStore):
    """A sidecar's store, which notes its orders and lets the job's stroke fall at one of them."""

    def __init__(self, server: Line, job: TroubledJob, node: str) -> None:
        super().__init__(server)  # type: ignore[arg-type]
        self._troubled = job
        self._node = node

    def order(
        self, lease: Lease, section: Section, field: str, value: str | None, expected: str | None
    ) -> bool:
        self._troubled.fall("before", self._node)
        done = super().order(lease, section, field, value, expected)
        if done:
            self._troubled.note(Written(lease, section, value, self._troubled.now))
        self._troubled.fall("after", self._node)
        return done


class TroubledJob(SimulatedJob):
    """See above. `orders` are all that went through, by whomever."""

    def __init__(self, folder: Path, stroke: Stroke | None = None, **options: Any) -> None:
        self.stroke = stroke
        self.orders: list[Written] = []
        self.obeyed: dict[str, list[Plan]] = {}
        self.late: dict[str, set[str]] = {}
        """Incident -> nodes that had not kept its evidence when the attempt was ended for it."""
        self.back_at: dict[str, float] = {}
        """Node without a sidecar -> when its launcher has another one running."""
        self.server_back_at = float("inf")
        self.cut_until: dict[str, float] = {}
        """Node -> until when nothing of it reaches the server."""
        self.servers: dict[str, MemoryServer] = {}
        """Node -> the server on its side of a partition, where that is not the one of all."""
        self.pids = 1
        self.is_armed = False
        super().__init__(folder, **options)

    @property
    def plan(self) -> Plan | None:
        """None while the server is away, too."""
        try:
            return super().plan
        except StoreUnavailable:
            return None

    def add(self, name: str) -> SimulatedNode:
        node = super().add(name)
        self.start_sidecar(node)
        return node

    def start_sidecar(self, node: SimulatedNode) -> None:
        """Another sidecar for this launcher, with the fence that is on its disk."""
        self.pids += 1
        line = Line(self, node.name)
        node.store = MemoryStore(line)  # type: ignore[arg-type]
        store = StruckStore(line, self, node.name)
        leadership = Leadership(
            store, self.settings, self.storage, lambda: f"id{next(self.identifiers)}"
        )
        before = node.coordinator.incarnation
        node.coordinator = Coordinator(
            store,
            NodeIdentity(node.name, f"s{self.pids}", self.pids, predecessor=before),
            self.settings,
            leadership,
            FenceFile(self.folder / node.name / "fence.json"),
            round_trips=self.round_trips[node.name],
        )
        node.evidence_for = ""

    def reaches(self, one: SimulatedNode, other: SimulatedNode) -> bool:
        """A node without a sidecar answers nobody; sides with servers of their own are apart."""
        is_apart = self.servers.get(one.name) is not self.servers.get(other.name)
        return super().reaches(one, other) and other.name not in self.back_at and not is_apart

    def fall(self, when: str, node: str) -> None:
        """Let the stroke fall if this is its moment."""
        stroke = self.stroke
        if stroke is None or not self.is_armed or stroke.is_over:
            return
        stroke.count += when == "before"
        if (stroke.count, when) == (stroke.at, stroke.when):
            stroke.is_over = True
            stroke.strike(self, node)

    def note(self, written: Written) -> None:
        self.orders.append(written)
        plan = None if written.section is not Section.PLAN else decode(Plan, written.value or "")
        if plan is not None and plan.state == "ended" and plan.cause in ("hang", "stall"):
            self.late[plan.incident] = {
                node.name for node in self.nodes.values() if not self.has_kept(node, plan)
            }

    def has_kept(self, node: SimulatedNode, plan: Plan) -> bool:
        """Whether it has the evidence, or need not: gone, out of reach (nothing is ended there
        then), or no member."""
        is_member = node.name in {member.node for member in plan.members}
        is_away = node.dead or self.now < self.cut_until.get(node.name, 0.0)
        return is_away or not is_member or node.evidence_for == plan.incident

    def tick(self) -> None:
        if self.now >= self.server_back_at:
            self.server.resume()
            self.server_back_at = float("inf")
        for name, at in list(self.back_at.items()):
            if self.now >= at:
                del self.back_at[name]
                self.start_sidecar(self.nodes[name])
        super().tick()

    def attend(self, node: SimulatedNode) -> None:
        """What a node's sidecar does in a tick, while it lives; its launcher reads for itself."""
        if node.name in self.back_at:
            self.read_alone(node)
        else:
            try:
                super().attend(node)
            except Died:
                return
        plan = node.coordinator.orders().plan
        if plan is not None:
            self.obeyed.setdefault(node.name, []).append(plan)

    def read_alone(self, node: SimulatedNode) -> None:
        try:
            plan = parse_cluster(node.store.read()).plan
        except StoreUnavailable:
            return
        known = node.coordinator.orders()
        is_stale = known.plan is not None and plan is not None and place(plan) < place(known.plan)
        if plan is not None and not is_stale:
            node.coordinator._orders = dataclasses.replace(known, plan=plan)

    def split(self, *nodes: str) -> MemoryServer:
        """These are with a server of their own now, as when each side has its sentinels."""
        other = MemoryServer(clock=lambda: self.now)
        other._jobs, other._generation = self.server._copy(), self.server._generation + 1
        self.servers = dict.fromkeys(nodes, other)
        return other

    def mend(self) -> None:
        """All are with the server of the greater side again; what the other one had is lost."""
        self.servers = {}

    def lose_sidecar(self, name: str) -> None:
        """SIGKILL; its launcher, the parent, sees it."""
        node = self.nodes[name]
        node.ended_sidecar = node.coordinator._identity.pid
        self.back_at[name] = self.now + RESTART_S

    def check(self) -> None:
        """At most one leader an epoch, no stale order obeyed, evidence before the end."""
        leaders: dict[int, str] = {}
        for order in self.orders:
            first = leaders.setdefault(order.lease.epoch, order.lease.candidate)
            assert first == order.lease.candidate, f"epoch {order.lease.epoch} was led twice"
        for name, plans in self.obeyed.items():
            places = [(plan.attempt, plan.epoch) for plan in plans]
            assert places == sorted(places), f"{name} obeyed a stale plan"
            for plan in plans:
                assert plan.epoch in leaders, f"{name} obeyed a plan of nobody's"
        for node in self.nodes.values():
            assert node.attempts_run == sorted(set(node.attempts_run)), "an attempt ran twice"
        for incident, nodes in self.late.items():
            assert not nodes, f"ended without evidence of {nodes} for {incident}"

    def story(self) -> str:
        """What was ordered, for a test that fails."""
        return "\n".join(f"{o.at:.1f} {o.lease} {o.section.value} {o.value}" for o in self.orders)


def place(plan: Plan) -> tuple[int, int, int]:
    return plan.attempt, plan.epoch, STAGES.index(plan.state)


def sidecar_dies(job: TroubledJob, node: str) -> None:
    job.lose_sidecar(node)
    raise Died


def node_dies(job: TroubledJob, node: str) -> None:
    """And somebody starts it anew, or a spare comes."""
    job.nodes[node].dead = True
    job.add(f"{node}x")
    raise Died


def server_pauses(job: TroubledJob, node: str) -> None:
    job.server.pause()
    job.server_back_at = job.now + 3.0


def leader_is_cut_off(job: TroubledJob, node: str) -> None:
    """Its node hears nothing for a while, and the others nothing of it."""
    job.cut_until[node] = job.now + 4.0


def answer_is_lost(job: TroubledJob, node: str) -> None:
    """Whoever wrote can't know whether it was written."""
    raise StoreUnavailable("timed out")


def server_is_emptied(job: TroubledJob, node: str) -> None:
    job.server.empty()


def server_fails_over(job: TroubledJob, node: str) -> None:
    """The order just written is lost, and the two before it."""
    job.server.fail_over(lost_writes=3)


def incidents_of(job: SimulatedJob, attempt: int) -> list[Incident]:
    return [incident for incident in job.incidents() if incident.attempt == attempt]
