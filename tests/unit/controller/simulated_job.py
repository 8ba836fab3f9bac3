"""A whole job without processes: agents and sidecars as small state machines on a MemoryServer.

Time is a number that the test moves. The leader is the real one; faults are planted by name.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from holdfast.contract.page import checkpoint_name
from holdfast_sidecar.checkpoint.writer.client import StorageUnanswered
from holdfast_sidecar.config.settings import (
    CheckpointSettings,
    GateSettings,
    ModeSettings,
    NumbersSettings,
    PolicySettings,
    Settings,
    SidecarSettings,
)
from holdfast_sidecar.controller.coordinator import Coordinator, NodeIdentity
from holdfast_sidecar.controller.fence import FenceFile
from holdfast_sidecar.controller.leader import Leadership
from holdfast_sidecar.policy.cluster import parse_cluster
from holdfast_sidecar.records.checkpoint import (
    CheckpointOrder,
    FileFact,
    LedgerEntry,
    SavedPart,
    SnapshotReport,
)
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.records.plan import Candidate, Incident, Plan, Request
from holdfast_sidecar.records.reports import (
    AgentReport,
    Exit,
    GateVerdict,
    Life,
    LifeSign,
    RankReport,
)
from holdfast_sidecar.records.steps import SlownessReport
from holdfast_sidecar.store.memory_store import MemoryServer, MemoryStore
from holdfast_sidecar.store.orders import LocalState
from holdfast_sidecar.store.protocol import Section, StoreUnavailable

TICK_S = 0.1
STEP_S = 0.1


KEPT = 3


class MemoryStorage:
    """The checkpoint directory, as a dictionary."""

    def __init__(self) -> None:
        self.held: dict[str, LedgerEntry] = {}
        self.poisoned: set[str] = set()
        self.tidied: list[str] = []
        self.is_away = False
        self.clock: Callable[[], float] = lambda: 0.0
        self.takes_no_verdicts = False
        self.lists_late = False
        """Listings are answered once the next checkpoint is there, and do not know of it."""
        self._listed: dict[str, list[LedgerEntry]] = {}

    def prepare(self) -> None:
        pass

    def candidates(self, occasion: str = "") -> list[Candidate]:
        if self.is_away:
            raise OSError(116, "Stale file handle")
        usable = [e for e in self.held.values() if e.identifier not in self.poisoned]
        newest_first = sorted(usable, key=lambda e: (e.attempt, e.step), reverse=True)
        return [
            Candidate(e.identifier, e.path, e.step, is_good=e.verdict == "good")
            for e in newest_first
        ]

    def path(self, step: int, identifier: str) -> str:
        return f"/checkpoints/{checkpoint_name(step, identifier)}"

    def finish(self, order: CheckpointOrder, plan: Plan, parts: Sequence[SavedPart]) -> LedgerEntry:
        entry = LedgerEntry(
            order.identifier,
            order.path,
            order.step,
            order.attempt,
            order.epoch,
            "",
            "complete",
            1,
            plan.world_size,
            self.clock(),
            requested_by=order.requested_by,
        )
        self.held[order.identifier] = entry
        return entry

    def settle(self, order: CheckpointOrder) -> LedgerEntry | None:
        return self.held.get(order.identifier)

    def tidy(self, entry: LedgerEntry, plan: Plan) -> None:
        self.tidied.append(entry.identifier)
        for name in list(self.held)[:-KEPT]:
            del self.held[name]

    def entries(self, occasion: str = "") -> list[LedgerEntry]:
        listed = self._listed.setdefault(occasion, list(self.held.values()))
        if self.lists_late and list(self.held.values())[-1:] == listed[-1:]:
            raise StorageUnanswered
        return self._listed.pop(occasion)

    def failed_to_load(self, identifier: str, attempt: int) -> LedgerEntry | None:
        self.poisoned.add(identifier)
        return None

    def give_verdict(self, identifier: str, verdict: str, reason: str) -> LedgerEntry | None:
        if self.takes_no_verdicts:
            raise OSError(30, "Read-only file system")
        if identifier not in self.held:
            return None
        if verdict == "poisoned":
            self.poisoned.add(identifier)
        self.held[identifier] = dataclasses.replace(self.held[identifier], verdict=verdict)
        return self.held[identifier]


@dataclass
class SimulatedNode:
    """A launcher, its ranks and its sidecar."""

    name: str
    incarnation: str
    store: MemoryStore
    coordinator: Coordinator
    slots: int
    nodes: tuple[int, int]
    registered: bool
    attempt: int = -1
    gathers: int = 1
    """So many steps lie between two boundaries."""
    beat: int = 0
    state: str = "joining"
    exits: list[Exit] = field(default_factory=list)
    plan: Plan | None = None
    step: float = 0.0
    resumed: int = 0
    resume_failures: int = 0
    onset: int = -1
    """Since which step its losses are not finite."""
    spike_onset: int = -1
    """Since which step they spike."""
    diverges_at: int = -1
    """The step at which they stop to be finite, in every attempt that comes to it."""
    frozen: set[int] = field(default_factory=set)
    communicates: bool = True
    """Its ranks' steps have collectives."""
    groups: tuple[str, ...] = ()
    """The process group that these are of, as ranks tell it."""
    ending: int = 0
    """What its ranks' pages say of their end."""
    dead: bool = False
    """The whole machine is gone."""
    launcher_dead: bool = False
    starved: bool = False
    """The launcher lives and gets no turn to report."""
    obeys_every: int = 1
    """The launcher is slow: it looks at the plan only every so many ticks."""
    message: str = ""
    """What the next crash says."""
    until: int = 10**9
    exit_code: int | None = None
    saved: SavedPart | None = None
    takes_snapshots: bool = False
    held: dict[str, list[int]] = field(default_factory=dict)
    """Snapshots in memory; they outlive the ranks."""
    copies: dict[str, list[int]] = field(default_factory=dict)
    """Those of other nodes' ranks."""
    peer_address: str = ""
    """Where its sidecar gives them away; empty: nowhere."""
    writes: bool = True
    """Its sidecar's writer has written it at once."""
    trickles: bool = False
    """Where it has not: whether it gets on with it."""
    breaks: str = ""
    """Its sidecar's writer fails with this."""
    evidence_for: str = ""
    attempts_run: list[int] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)
    fault: str = ""
    machine: str = ""
    """The machine's id; empty: one of its own."""
    launch: str = ""
    launch_number: int = 0
    launch_command: str = ""
    preempted_by: str = ""
    ended_sidecar: int = 0
    """Pid of its sidecar that the launcher saw end."""
    ill: list[Finding] = field(default_factory=list)
    """What its sidecar finds of its hardware; a rank of a GPU is given as its local rank."""
    gone_at: float = float("inf")
    ends_s: float = float("inf")
    """When its time limit ends it, by the simulation's clock."""
    clock_ahead_s: float = 0.0
    """Its wall clock, against everybody's."""
    gate: GateVerdict | None = None
    """What its sidecar says of it; None: nothing."""
    awaits_gate: bool = False
    judges: Callable[[float], SlownessReport | None] = lambda now: None
    """What its sidecar says of who is slow, should it lead."""
    lines: Callable[[SimulatedNode], list[str]] = lambda node: []
    """What its sidecar tells of its ranks' steps."""
    stepped_at: float = 0.0
    told_step_s: float = STEP_S
    """What its ranks say a step takes; 0 while they don't know yet."""

    def reboot(self) -> None:
        """Its machine was started anew, and nothing is ill any more."""
        self.ill = []
        identity = self.coordinator._identity
        self.coordinator._identity = dataclasses.replace(identity, boot=f"{identity.boot}+")

    def preempt(self, now: float, grace_s: float = 25.0) -> None:
        """A scheduler asks for the node."""
        self.preempted_by, self.gone_at = "SIGTERM", now + grace_s

    def crash(self, local_rank: int, exit_code: int, now: float, message: str = "") -> None:
        """End one rank; its peers follow as survivors of gloo do."""
        if self.state != "running" or self.plan is None:
            return
        first = next(m.first_rank for m in self.plan.members if m.node == self.name)
        order = len(self.exits)
        ended = Exit(
            first + local_rank, local_rank, 100, exit_code, now, order, message, int(self.step)
        )
        self.exits = [*self.exits, ended]
        self.state = "failed"

    def obey(self, now: float) -> None:
        """What launcher and ranks do with the plan."""
        plan = self.coordinator.orders().plan
        if plan is None or self.dead or self.launcher_dead or self.exit_code is not None:
            return
        member = next(
            (m for m in plan.members if (m.node, m.incarnation) == (self.name, self.incarnation)),
            None,
        )
        if plan.state in ("done", "stopped") and plan.attempt > self.known_end(plan):
            self.exit_code = plan.exit_code
            self.state = "left"
        elif plan.state == "running" and member is not None and plan.attempt > self.attempt:
            if self.state == "joining":
                self.start(plan)
        elif (self.preempted_by and plan.state == "ended") or now >= self.gone_at:
            self.exit_code, self.state = 75, "left"
        elif (plan.state == "ended" and self.runs(plan)) or self.is_left_behind(plan):
            self.state, self.frozen = "joining", set()

    def write(self) -> None:
        """What the sidecar's writer does with an order that waits for no rank any more."""
        order = self.coordinator.orders().checkpoint
        if order is None:
            return
        part = self.saved
        if part is None or part.identifier != order.identifier:
            part = SavedPart(order.identifier)
        if order.state == "armed" and set(part.states.values()) == {"saved"}:
            if self.trickles and not part.files:
                self.saved = replace(part, done_bytes=part.done_bytes + 1)
        elif order.state == "writing" and self.name in order.writers.values():
            if self.writes or self.breaks:
                files = {} if self.breaks else {f"{self.name}.bin": FileFact(1, "aa")}
                self.saved = SavedPart(order.identifier, part.states, files, error=self.breaks)
            elif self.trickles:
                self.saved = replace(part, done_bytes=part.done_bytes + 1)

    def runs(self, plan: Plan) -> bool:
        """Whether its ranks are those of the plan's attempt."""
        is_own = self.plan is not None and plan.attempt == self.plan.attempt
        return is_own and self.state in ("running", "failed", "succeeded")

    def is_left_behind(self, plan: Plan) -> bool:
        """Whether the others went on without it, while it heard nothing."""
        return plan.attempt > self.attempt and self.state in ("running", "failed", "succeeded")

    def keep_evidence(self) -> None:
        """What the sidecar does with the plan."""
        plan = self.coordinator.orders().plan
        if plan is not None and plan.state == "evidence":
            self.evidence_for = plan.incident

    def steps_done(self) -> dict[str, int]:
        """What the pages of dead ranks say."""
        if self.state != "joining" or self.plan is None:
            return {}
        return dict.fromkeys(self.rank_names, int(self.step))

    def known_end(self, plan: Plan) -> int:
        """A member leaves at the end of the attempt it runs, a spare at any."""
        ran = self.plan is not None and self.plan.attempt == plan.attempt
        return plan.attempt - 1 if ran else self.attempt

    @property
    def rank_names(self) -> list[str]:
        """Of the attempt it runs."""
        assert self.plan is not None
        first = next(m.first_rank for m in self.plan.members if m.node == self.name)
        return [str(first + local) for local in range(self.slots)]

    def start(self, plan: Plan) -> None:
        self.plan, self.attempt, self.state = plan, plan.attempt, "running"
        self.exits, self.onset, self.spike_onset = [], -1, -1
        self.saved = self.saved if self.takes_snapshots else None
        self.resumed = plan.resume[0].step if plan.resume else 0
        self.step, self.stepped_at = float(self.resumed), float("inf")
        self.attempts_run.append(plan.attempt)

    def report(self, now: float) -> None:
        """Both reports, as launcher and sidecar write them."""
        if self.dead:
            return
        self.beat += 1
        agent = AgentReport(
            self.name,
            self.incarnation,
            self.state,
            self.attempt,
            self.beat,
            self.slots,
            "127.0.0.1",
            *self.nodes,
            pid=1,
            last_call_s=1.0,
            exits=self.exits,
            plan=encode(self.plan) if self.plan is not None and self.state == "running" else "",
            preempted_by=self.preempted_by,
            grace_s=25.0 if self.preempted_by else 0.0,
            left_s=0.0 if self.ends_s == float("inf") else max(0.001, self.ends_s - now),
            machine=self.machine or f"machine-of-{self.name}",
            steps=self.steps_done(),
            ended_sidecar=self.ended_sidecar,
            awaits_gate=self.awaits_gate,
            launch=self.launch,
            launch_number=self.launch_number,
            launch_command=self.launch_command,
        )
        if not self.launcher_dead and not self.starved:
            try:
                self.store.report(Section.AGENTS, self.name, encode(agent))
            except StoreUnavailable:
                return
        self.coordinator.tell(self.local_state(now))

    def stands_s(self, now: float) -> float:
        """For how long its ranks have waited for others in a step that is due, if they do."""
        own_s = max(self.told_step_s, STEP_S) + TICK_S
        stood_s = now - self.stepped_at
        return stood_s - own_s if self.state == "running" and stood_s > own_s else 0.0

    def local_state(self, now: float) -> LocalState:
        member = (
            next((m for m in self.plan.members if m.node == self.name), None)
            if self.plan is not None
            else None
        )
        ranks = [
            RankReport(
                member.first_rank + local,
                local,
                100 + local,
                int(self.step),
                "backward" if self.stands_s(now) and local not in self.frozen else "forward",
                self.stands_s(now),
                self.told_step_s,
                self.told_step_s,
                window_s=self.gathers * self.told_step_s,
                state_registered=self.registered,
                resumed_step=self.resumed,
                resume_failures=self.resume_failures,
                is_loss_finite=self.onset < 0,
                nonfinite_losses=int(self.onset >= 0),
                onset_step=self.onset,
                loss=1.0 if self.onset < 0 else None,
                ill_steps=max(0, int(self.step) - self.onset + 1) if self.onset >= 0 else 0,
                spike_onset=self.spike_onset,
                alive=self.state == "running",
                ending=self.ending,
                groups=list(self.groups),
                collectives=[int(self.step)] if self.communicates else [],
            )
            for local in range(self.slots)
            if member is not None
        ]
        findings = [
            Finding(Kind.HANG, self.name, now, 0.95, [rank.rank], acts=True)
            for rank in ranks
            if rank.local_rank in self.frozen and self.state == "running"
        ]
        first = 0 if member is None else member.first_rank
        findings += [
            dataclasses.replace(one, node=self.name, ranks=[first + rank for rank in one.ranks])
            for one in self.ill
        ]
        return LocalState(
            launcher_alive=not self.launcher_dead,
            launcher_pid=1,
            attempt=self.attempt,
            ranks=ranks,
            findings=findings,
            evidence_for=self.evidence_for,
            saved=self.saved,
            gate=self.gate,
            slow=self.judges(now),
            steps=self.lines(self),
            snapshot=SnapshotReport(
                self.attempt,
                slots=3,
                wants=True,
                held=self.held,
                copies=self.copies,
                peer_address=self.peer_address,
            )
            if self.takes_snapshots
            else None,
        )


class SimulatedRoundTrips:
    """Round trips of one node, answered at once by whoever lives and is reached."""

    EVERY_S = 5.0

    def __init__(self, job: SimulatedJob, node: str) -> None:
        self._job = job
        self._node = node
        self._attempt = -1
        self._watched: frozenset[str] = frozenset()
        self._suspects: frozenset[str] = frozenset()
        self._heard: dict[str, LifeSign] = {}

    def watch(self, nodes: frozenset[str], suspects: frozenset[str]) -> None:
        self._watched, self._suspects = nodes, suspects

    def heard(self) -> dict[str, LifeSign]:
        return dict(self._heard)

    def go_round(self) -> None:
        """A tenth of a second of asking."""
        now, own = self._job.now, self._job.nodes[self._node]
        plan = own.coordinator.orders().plan
        attempt = -1 if plan is None else plan.attempt
        if attempt != self._attempt:
            self._attempt, self._heard = attempt, {}
        for name in self._watched:
            known, other = self._heard.get(name, LifeSign()), self._job.nodes[name]
            asked_s = known.answered_s
            is_due = asked_s is None or now - asked_s >= self.EVERY_S
            if not is_due and name not in self._suspects:
                continue
            if self._job.reaches(own, other):
                since_s = known.since_step_s if known.life.step == int(other.step) else now
                life = Life(not other.launcher_dead, other.slots, int(other.step))
                self._heard[name] = LifeSign(now, 0, life, since_s)
            elif asked_s is not None:
                more = known.unanswered + (name in self._suspects)
                self._heard[name] = dataclasses.replace(known, unanswered=more)


class SimulatedJob:
    """Nodes, one server, and a clock."""

    def __init__(
        self,
        folder: Path,
        nodes: int = 2,
        spares: int = 0,
        slots: int = 2,
        least: int | None = None,
        registered: bool = False,
        every_steps: int = 0,
        seed: int = 0,
        policy: PolicySettings | None = None,
        checkpoint: CheckpointSettings | None = None,
        snapshots: bool = False,
        mode: str = "act",
        modes: ModeSettings | None = None,
        numbers: NumbersSettings | None = None,
        gate: GateSettings | None = None,
    ) -> None:
        self.now = 1000.0
        self.random = random.Random(seed)
        self.server = MemoryServer(clock=lambda: self.now)
        self.storage = MemoryStorage()
        self.storage.clock = lambda: self.now
        self.folder = folder
        self.settings = Settings(
            sidecar=SidecarSettings(
                tick_s=TICK_S, heartbeat_s=TICK_S, node_timeout_s=0.6, lease_s=0.6, mode=mode
            ),
            modes=modes or ModeSettings(),
            policy=policy or PolicySettings(),
            numbers=numbers or NumbersSettings(),
            gate=gate or GateSettings(),
            checkpoint=checkpoint or CheckpointSettings(dir="/c", every_steps=every_steps),
        )
        self.slots, self.bounds = slots, (nodes if least is None else least, nodes)
        self.registered = registered
        self.snapshots = snapshots
        self.identifiers = itertools.count(1)
        self.until = 10**9
        self.misses = 0
        """So many orders come too late for their rank."""
        self.nodes: dict[str, SimulatedNode] = {}
        self.round_trips: dict[str, SimulatedRoundTrips] = {}
        self.ticks_per_step = 1
        self.unreached: set[str] = set()
        """Nodes that no packet of another sidecar reaches."""
        for index in range(nodes + spares):
            self.add(f"n{index}")

    def add(self, name: str) -> SimulatedNode:
        """Start a launcher and a sidecar under this name."""
        incarnation = f"i{next(self.identifiers)}"
        before = self.nodes.get(name)
        predecessor = "" if before is None else before.coordinator.incarnation
        store = MemoryStore(self.server)
        leadership = Leadership(
            store, self.settings, self.storage, lambda: f"id{next(self.identifiers)}"
        )
        coordinator = Coordinator(
            store,
            NodeIdentity(name, incarnation, 1, f"boot-of-{name}", predecessor=predecessor),
            self.settings,
            leadership,
            FenceFile(self.folder / name / "fence.json"),
            clock=lambda: self.now,
            round_trips=self.round_trips.setdefault(name, SimulatedRoundTrips(self, name)),
        )
        node = SimulatedNode(
            name, incarnation, store, coordinator, self.slots, self.bounds, self.registered
        )
        if (plan := self.plan) is not None and plan.state in ("done", "stopped"):
            node.attempt = plan.attempt
        node.takes_snapshots = self.snapshots
        self.nodes[name] = node
        return node

    def reaches(self, one: SimulatedNode, other: SimulatedNode) -> bool:
        """Whether a packet of this node comes back from the other one."""
        is_cut = bool(self.unreached & {one.name, other.name})
        known = one.coordinator.orders().plan
        is_same = known is not None and known.attempt == other.attempt
        return not is_cut and not other.dead and is_same

    @property
    def plan(self) -> Plan | None:
        return parse_cluster(MemoryStore(self.server).read()).plan

    @property
    def checkpoint(self) -> CheckpointOrder | None:
        return parse_cluster(MemoryStore(self.server).read()).checkpoint

    def incidents(self) -> list[Incident]:
        found = parse_cluster(MemoryStore(self.server).read()).incidents
        return sorted(found.values(), key=lambda incident: incident.attempt)

    def ask(self, identifier: str, kind: str, **what: Any) -> None:
        """A person's wish."""
        request = Request(identifier, kind, "ann@desk", self.now, **what)
        MemoryStore(self.server).report(Section.REQUESTS, identifier, encode(request))

    def requests(self) -> dict[str, Request]:
        return dict(parse_cluster(MemoryStore(self.server).read()).requests)

    def is_running(self, attempt: int) -> bool:
        """Whether every member of this attempt has made a step."""
        plan = self.plan
        if plan is None or (plan.state, plan.attempt) != ("running", attempt):
            return False
        members = [self.nodes[member.node] for member in plan.members]
        return all(
            n.state == "running" and n.attempt == attempt and n.step > n.resumed for n in members
        )

    def tick(self) -> None:
        """A tenth of a second of everyone's life."""
        self.now += TICK_S
        for node in self.random.sample(list(self.nodes.values()), len(self.nodes)):
            if node.dead:
                continue
            node.report(self.now)
            self.attend(node)
            if node.beat % node.obeys_every == 0:
                node.obey(self.now)
        for name, node in self.nodes.items():
            if not node.dead:
                self.round_trips[name].go_round()
        if round(self.now / TICK_S) % self.ticks_per_step == 0:
            self._train()

    def attend(self, node: SimulatedNode) -> None:
        """What a node's sidecar does in a tick."""
        try:
            node.coordinator.exchange(self.now, self.now + node.clock_ahead_s)
        except StoreUnavailable as error:
            node.coordinator._lose_store(error)
        node.keep_evidence()
        node.write()

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / TICK_S)):
            self.tick()

    def run_until(self, condition: Callable[[], bool], seconds: float = 30.0) -> None:
        """Tick until the condition holds; fail when it does not in time."""
        for _ in range(round(seconds / TICK_S)):
            if condition():
                return
            self.tick()
        raise AssertionError(f"not within {seconds} s; plan: {self.plan}")

    def _train(self) -> None:
        """One step for all ranks when all of the attempt are there: training is synchronous."""
        running = [n for n in self.nodes.values() if n.state == "running" and not n.dead]
        for attempt in {n.attempt for n in running}:
            peers = [n for n in running if n.attempt == attempt]
            plan = peers[0].plan
            assert plan is not None
            if len(peers) < len(plan.members):
                self._fail_survivors(peers, plan)
            elif not any(n.frozen for n in peers):
                for node in peers:
                    self._step(node)

    def _fail_survivors(self, peers: list[SimulatedNode], plan: Plan) -> None:
        """Gloo tells a survivor within a step that its peer is gone."""
        missing = {m.node for m in plan.members} - {n.name for n in peers}
        gone = [self.nodes[name] for name in missing if name in self.nodes]
        if any(n.state == "succeeded" for n in gone):
            return
        if any(
            (n.attempt == plan.attempt and n.state in ("failed", "left")) or n.dead for n in gone
        ):
            for node in peers:
                node.crash(0, 1, self.now, "RuntimeError: gloo: Connection closed by peer")

    def _step(self, node: SimulatedNode) -> None:
        node.step, node.stepped_at = node.step + 1, self.now
        if int(node.step) == node.diverges_at:
            node.onset = node.diverges_at
        if node.takes_snapshots:
            node.held = {rank: [int(node.step)] for rank in node.rank_names}
        order = node.coordinator.orders().checkpoint
        step, before = int(node.step), int(node.step) - node.gathers
        is_boundary = step % node.gathers == 0
        if (
            order is not None
            and order.state == "armed"
            and is_boundary
            and (before < order.step <= step)
        ):
            if self.misses:
                self.misses -= 1
                node.saved = SavedPart(order.identifier, {"0": "missed"}, {})
                return
            if order.mode == "snapshot":
                states = dict.fromkeys(node.rank_names, "copied")
                node.saved = SavedPart(order.identifier, states, step=step)
            else:
                node.saved = SavedPart(
                    order.identifier,
                    dict.fromkeys(node.rank_names, "saved"),
                    {f"{node.name}.bin": FileFact(1, "aa")} if node.writes else {},
                    step=step,
                )
        if node.step >= self.until:
            node.state = "succeeded"
