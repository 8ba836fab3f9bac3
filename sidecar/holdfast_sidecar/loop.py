"""The node's loop: probes read, detectors judge, coordination decides, actions act, metrics tell.

Coordination runs in a thread of its own; the loop hands it what it saw and obeys what was agreed,
and waits for neither Redis nor any other node.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast_sidecar.actions import Actions
from holdfast_sidecar.checkpoint.replication.fetch import PeerCounts
from holdfast_sidecar.checks import (
    judge_machine,
    judge_ranks,
    keep_onsets,
    newly_found,
    no_longer_found,
)
from holdfast_sidecar.components.hardware import HardwareAttention
from holdfast_sidecar.components.health_check.component import NodeGate
from holdfast_sidecar.components.health_check.self_test import Proving
from holdfast_sidecar.components.host.storage import find_unwritable_state
from holdfast_sidecar.components.machine import MachineProbes, MachineReading
from holdfast_sidecar.components.network.checks import told_only
from holdfast_sidecar.components.network.round_trip import NoRoundTrip, RoundTrip, life_of
from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.controller.fence import HeartbeatTimes
from holdfast_sidecar.export.state import LoopCounters, TickState
from holdfast_sidecar.lifecycle import Shutdown, ShutdownBlockers
from holdfast_sidecar.linux.probe_runner import ProbeRunner
from holdfast_sidecar.performance.slowness import OwnNode, SlownessAttention
from holdfast_sidecar.policy.attached import obeyed
from holdfast_sidecar.ranks.arrival import (
    concerned,
    is_doubtful,
    judge_collectives,
    note_rest,
    overdue,
)
from holdfast_sidecar.ranks.checks import (
    asked_of,
    find_missing_slots,
    find_preemption,
    find_slow_storage,
    find_unrestorable,
    told_to_go,
)
from holdfast_sidecar.ranks.death_watch import NoDeathWatch
from holdfast_sidecar.ranks.flight_recorder import FlightRecorderClient
from holdfast_sidecar.ranks.history import Inspection
from holdfast_sidecar.ranks.inspection import CloserProbe
from holdfast_sidecar.ranks.observation import RankHistory, RankLook, Ranks, RankTracker
from holdfast_sidecar.ranks.probe import parse_peers, parse_traces, report_rank
from holdfast_sidecar.ranks.stall import due_in_s, is_suspicious, suspects
from holdfast_sidecar.records.checkpoint import CheckpointOrder, SavedPart, SnapshotReport
from holdfast_sidecar.records.collectives import RankTrace
from holdfast_sidecar.records.findings import Finding, Moment
from holdfast_sidecar.records.reports import RankReport
from holdfast_sidecar.records.steps import NOWHERE
from holdfast_sidecar.store.orders import LocalState, Orders
from holdfast_sidecar.store.protocol import Section

logger = logging.getLogger(__name__)

CLOSER_LOOK_S = 0.1
"""Time between looks while a rank is under suspicion, or waits for its slots."""

SOONEST_LOOK_S = 0.02
"""However soon a rank's silence passes its limit: what is due is looked at once, a little late."""


class Coordination(Protocol):
    """The loop's side of `coordinator.Coordinator`."""

    changed: threading.Event

    def start(self) -> None:
        """Begin to exchange with the store."""

    def tell(self, state: LocalState) -> None:
        """Hand over the newest picture of this node."""

    def orders(self) -> Orders:
        """What was last agreed on."""

    def stop(self) -> None:
        """Give up the lease and end; a leader's orders then hold what it wrote last."""


class CloserLooks(Protocol):
    """Where the threads of suspects wait, and how their children stand."""

    def look(self, suspects: Iterable[RankLook], now_s: float) -> dict[int, Inspection]:
        """What is known of these ranks by now; the others are forgotten."""


class Inquiries(Protocol):
    """Where ranks stand in their collectives, as they say when they are asked."""

    def follow(
        self,
        is_wanted: bool,
        overdue: Iterable[int],
        histories: Mapping[int, RankHistory],
        now_s: float,
    ) -> dict[int, RankTrace]:
        """What is known by now, of ranks that have been asked; asks on meanwhile."""


class SavedParts(Protocol):
    """Turns the ranks' replies to a checkpoint order into this node's part of it."""

    def follow(self, order: CheckpointOrder | None, looks: list[RankLook]) -> SavedPart | None:
        """This node's part so far; writing goes on meanwhile. None without an order."""

    def silent_for(self) -> float:
        """How long storage has owed an answer without a sign of life, seconds; 0: it does not."""


class Snapshots(Protocol):
    """This node's slots: makes them, hands them to the ranks, reads what was sealed."""

    @property
    def is_pressed(self) -> bool:
        """Whether ranks wait for room or for the order, so that the next look should come soon."""

    def follow(self, orders: Orders, looks: list[RankLook], now_s: float) -> SnapshotReport | None:
        """What this node has now; allocation goes on meanwhile. None before any rank was seen."""


class Peers(Protocol):
    """Copies of snapshots on other nodes: serves and fetches them."""

    @property
    def counts(self) -> PeerCounts:
        """What was sent and received so far."""

    def follow(
        self,
        orders: Orders,
        looks: list[RankLook],
        report: SnapshotReport | None,
        now_s: float,
    ) -> SnapshotReport | None:
        """The snapshot report, with what there is to say of copies; transfers go on meanwhile."""

    def findings(self, moment: Moment) -> list[Finding]:
        """Why copies are behind, when they are."""

    def close(self) -> None:
        """End all transfers and stop serving."""


class DeathWatching(Protocol):
    """Wakes the loop when a rank dies: `ranks.death_watch.DeathWatch`."""

    def follow(self, looks: Sequence[RankLook]) -> None:
        """Watch the ranks that are there, and no others."""

    def close(self) -> None:
        """Watch nobody any more."""


class Teller(Protocol):
    """Where the loop's picture goes for people: the metrics page."""

    def tell(self, picture: TickState) -> None:
        """Hand over the newest picture."""


@dataclass
class Loop:
    """One sidecar's ticks. `run` returns when asked to leave, or having outlived its launcher."""

    node: str
    settings: Settings
    ranks_probe: ProbeRunner[list[RankLook]]
    machine: MachineProbes
    coordination: Coordination
    deeds: Actions
    saved_parts: SavedParts
    snapshots: Snapshots
    peers: Peers
    farewell: Shutdown
    teller: Teller
    parting: ShutdownBlockers
    metrics_address: str = ""
    unserved: str = ""
    """See NodeReport."""
    is_attached: bool = False
    """Somebody else launched the ranks: there is no plan."""
    death_watch: DeathWatching = field(default_factory=NoDeathWatch)
    echo: RoundTrip = field(default_factory=NoRoundTrip)
    attention: RankTracker = field(default_factory=RankTracker)
    closer_looks: CloserLooks = field(default_factory=CloserProbe)
    inquiry: Inquiries = field(default_factory=FlightRecorderClient)
    hardware: HardwareAttention = field(default_factory=HardwareAttention)
    slowness: SlownessAttention = field(default_factory=SlownessAttention)
    cost: LoopCounters = field(default_factory=LoopCounters)
    gate: NodeGate = field(init=False)
    proving: Proving = field(init=False)
    heartbeats: HeartbeatTimes = field(default_factory=HeartbeatTimes)
    started_unix_s: float = field(default_factory=time.time)
    _findings: list[Finding] = field(default_factory=list)
    _snapshot: SnapshotReport | None = None
    """As of the tick before: findings are judged before anything is done."""
    _told: LocalState = field(default_factory=lambda: LocalState(True, 0, -1))
    _is_suspicious: bool = False
    _doubts: bool = False
    _traces: dict[int, RankTrace] = field(default_factory=dict)
    _due_in_s: float = math.inf
    """When the next rank will have been silent for too long."""
    _store_answered_s: float | None = None
    _leaving: threading.Event = field(default_factory=threading.Event)
    _last_error: str = ""

    def __post_init__(self) -> None:
        self.gate = NodeGate(self.node, self.settings)
        self.proving = Proving(self.node, self.settings.gate)

    def leave(self) -> None:
        """Ask the loop to end (from a signal handler or another thread); twice: without waiting
        until a Prometheus has heard of it."""
        if self._leaving.is_set():
            self.parting.hurry()
        self._leaving.set()
        self.coordination.changed.set()

    def run(self) -> None:
        """Tick until it is time to leave."""
        self.coordination.start()
        while not self._is_over(time.monotonic()):
            started_s = time.monotonic()
            try:
                self.tick(started_s, time.time())
            except Exception as error:
                self._failed(error)
            else:
                self._last_error = ""
            took_s = time.monotonic() - started_s
            self.cost = self.cost.after_tick(took_s)
            self._rest(took_s)
        self.deeds.conclude(self.coordination.orders())
        self.farewell.say(self.attention.dead_ranks())
        self.deeds.traces.close()
        self.death_watch.close()
        self.machine.close()
        self.peers.close()
        self.echo.close()
        self.proving.close()
        self.coordination.stop()
        self.deeds.remember(self.coordination.orders())

    def tick(self, now_s: float, now_unix_s: float) -> None:
        """Read, judge, hear what was decided, act, tell."""
        orders = self.coordination.orders()
        machine = self.hardware.hear(self.machine.read(now_s))
        machine = dataclasses.replace(machine, round_trips=self.echo.follow(orders, now_s))
        looks = self.ranks_probe.read(now_s)
        launcher_alive = self.farewell.watch(now_s)

        if looks is not None:
            self.attention.take_in(looks, now_s)
            self.death_watch.follow(looks)
        moment = Moment(now_s, now_unix_s, self.node, self.attention.awake_since_s)
        ranks = self._ranks(orders, now_s)
        is_going_on = _is_going_on(orders, ranks.attempt)
        histories = self.attention.histories
        machine = self.hardware.follow(machine, ranks.attempt, histories, is_going_on, moment)
        self.slowness.see(ranks.local, machine, self.hardware.gpus.ownership, moment)
        reports = self._report(machine, moment)
        has_launcher = launcher_alive or not self.farewell.launcher.pid
        self.echo.tell(life_of(has_launcher, reports if is_going_on else []))
        if orders.store_up or self._store_answered_s is None:
            self._store_answered_s = now_s
        of_machine = judge_machine(
            machine, launcher_alive, self._store_answered_s, self.settings, moment
        )
        preempted_by = self._preempted_by(orders, ranks)
        found = [
            *(told_only(of_machine) if orders.is_alone else of_machine),
            *self.hardware.findings(machine, histories, moment),
            *find_preemption(preempted_by, moment),
            *orders.absent,
            *find_unwritable_state(orders.unwritten, moment),
            *self.peers.findings(moment),
            *find_missing_slots(self._snapshot, moment),
            *find_unrestorable(self.attention.looks(), moment),
            *find_slow_storage(self.saved_parts.silent_for(), orders.skipped, moment),
        ]
        alive = [rank for rank, history in ranks.local.items() if not history.look.is_gone]
        exertion = self.proving.follow(orders, alive, machine.gpu, moment)
        told = self.gate.look(machine, found, exertion, orders, moment)
        found += [] if self.is_attached else told  # nobody asks its gate there
        if launcher_alive and is_going_on:
            ranks = self._inquire(orders, ranks, moment)
            ranks = self._look_closely(ranks, moment)
            found += judge_ranks(ranks, self.settings, moment)
            self._is_suspicious = is_suspicious(ranks, self.settings.stall, moment)
            self._due_in_s = due_in_s(ranks, self.settings.stall, moment)
        else:
            self._is_suspicious, self._due_in_s = False, math.inf
            self._doubts, self._traces = False, self.inquiry.follow(False, (), {}, now_s)
        attempt = _attempt_under_way(orders, ranks.attempt)
        own = OwnNode(attempt, reports if ranks.attempt == attempt else [], found)
        found += self.slowness.judge(orders, own, moment)
        is_urgent = self._note(keep_onsets(found, self._findings))
        if is_urgent:
            # The others need not wait for what this node has to do about it.
            self._tell(
                launcher_alive=launcher_alive,
                attempt=ranks.attempt,
                ranks=reports,
                findings=self._findings,
            )

        heeded = obeyed(orders) if self.is_attached else orders
        self.deeds.act(heeded, self.attention.histories, now_s)
        self.deeds.bundles.follow(orders, machine, self.deeds.pages.held())
        traced = self.deeds.traces.follow(orders.trace, self.deeds.pages.held(), now_s)
        saved = self.saved_parts.follow(orders.checkpoint, self.attention.looks())
        snapshot = self.snapshots.follow(orders, self.attention.looks(), now_s)
        snapshot = self.peers.follow(orders, self.attention.looks(), snapshot, now_s)
        self._snapshot = snapshot
        if not launcher_alive:
            self.farewell.sweep(self.attention.dead_ranks())
            self.parting.rescue(orders, snapshot, reports)

        self._tell(
            launcher_alive=launcher_alive,
            launcher_pid=self.farewell.launcher.pid,
            attempt=ranks.attempt,
            ranks=reports,
            findings=self._findings,
            doubts=self._doubts,
            traces=list(self._traces.values()),
            evidence_for=self.deeds.evidence_for,
            where_ranks_stood=self.deeds.evidence.kept.where_ranks_stood,
            bundles=self.deeds.bundles.bundles,
            saved=saved,
            traced=traced,
            snapshot=snapshot,
            metrics_address=self.metrics_address,
            unserved=self.unserved,
            echo_address=self.echo.address,
            preempted_by=preempted_by,
            attached=self.is_attached,
            gate=self.gate.verdict,
            exertion=exertion,
            steps=self.slowness.steps,
            slow=self.slowness.standing,
            hooks=dict(self.deeds.hooks.outcomes),
        )
        self.teller.tell(
            TickState(
                moment=moment,
                ranks=ranks,
                findings=tuple(self._findings),
                orders=orders,
                machine=machine,
                probes=(
                    self.ranks_probe.health,
                    *self.machine.health(),
                    *self.slowness.health(),
                ),
                launcher_alive=launcher_alive,
                cost=self.cost,
                launcher_pid=self.farewell.launcher.pid,
                is_told_to_end=self._leaving.is_set() and self.parting.is_told_to_end,
                mode=self.settings.sidecar.mode,
                started_unix_s=self.started_unix_s,
                actions_done=dict(self.deeds.runner.done),
                actions_failed=dict(self.deeds.runner.failed),
                checkpoint_settings=self.settings.checkpoint,
                policy=self.settings.policy,
                price=self.settings.cost,
                heartbeats=self.heartbeats.seen(orders.view, now_unix_s),
                gpus=self.hardware.gpus.view(),
                peers=self.peers.counts,
                snapshot=snapshot,
                fitness=self.gate.fitness,
            )
        )

    def _is_over(self, now_s: float) -> bool:
        """Whether it may leave, and nothing is left to be written down."""
        if self.farewell.has_successor:
            return True
        if not self._leaving.is_set() and not self.farewell.is_due(now_s):
            return False
        return not self.parting.keeps(self.coordination.orders(), now_s)

    def _preempted_by(self, orders: Orders, ranks: Ranks) -> str:
        """A launcher of ours says it itself; under torchrun the ranks know."""
        if not self.farewell.launcher.pid:
            return told_to_go(ranks)
        agents = {} if orders.view is None else orders.view.section(Section.AGENTS)
        return asked_of(agents, self.node)

    def _ranks(self, orders: Orders, now_s: float) -> Ranks:
        attempt, local = self.attention.attempt, self.attention.seen_at(now_s)
        reports = {} if orders.view is None else orders.view.section(Section.NODES)
        peers = parse_peers(reports, self.node, attempt, orders.stale)
        return Ranks(attempt, local, peers)

    def _report(self, machine: MachineReading, moment: Moment) -> list[RankReport]:
        energy, layouts = self.hardware.gpus.energy, machine.layouts
        return [
            report_rank(history, self.settings, moment, energy.of(rank), layouts.get(rank, NOWHERE))
            for rank, history in self.attention.histories.items()
        ]

    def _inquire(self, orders: Orders, ranks: Ranks, moment: Moment) -> Ranks:
        """Ask the ranks where they stand while one of them, here or elsewhere, is doubtful."""
        stall = self.settings.stall
        reports = {} if orders.view is None else orders.view.section(Section.NODES)
        self._doubts = is_doubtful(ranks, stall, moment)
        others_doubt, traces = parse_traces(reports, self.node, ranks.attempt, orders.stale)
        is_wanted = self._doubts or others_doubt
        late = overdue(ranks, stall, moment) if is_wanted else ()
        self._traces = self.inquiry.follow(is_wanted, late, ranks.local, moment.now_s)
        if not is_wanted:
            return ranks
        asked = dataclasses.replace(ranks, traces={**traces, **self._traces})
        return dataclasses.replace(asked, arrival=judge_collectives(asked))

    def _look_closely(self, ranks: Ranks, moment: Moment) -> Ranks:
        doubtful = suspects(ranks, self.settings.stall, moment)
        doubtful += concerned(ranks, doubtful)
        scrutinies = self.closer_looks.look(doubtful, moment.now_s)
        ranks = note_rest(dataclasses.replace(ranks, scrutinies=scrutinies))
        self._traces = {rank: ranks.traces[rank] for rank in self._traces}
        return ranks

    def _tell(self, **changed: Any) -> None:
        self._told = dataclasses.replace(self._told, **changed)
        self.coordination.tell(self._told)

    def _note(self, findings: list[Finding]) -> bool:
        """Log what is new; whether some of it may cost a rank its life."""
        new = list(newly_found(findings, self._findings))
        for finding in new:
            logger.warning(
                "found %s of ranks %s: %s",
                finding.kind.value,
                finding.ranks,
                "; ".join(finding.evidence),
            )
            self.cost = self.cost.after_finding(finding.kind)
        for finding in no_longer_found(findings, self._findings):
            logger.info("no longer found: %s of ranks %s", finding.kind.value, finding.ranks)
        self._findings = findings
        return any(finding.acts for finding in new)

    def _failed(self, error: Exception) -> None:
        self.cost = self.cost.after_failure()
        text = f"{type(error).__name__}: {error}"
        if text != self._last_error:
            logger.exception("a tick failed, the next one comes all the same")
            self._last_error = text

    def _rest(self, took_s: float) -> None:
        is_urgent = self._is_suspicious or self.snapshots.is_pressed
        usual_s = CLOSER_LOOK_S if is_urgent else self.settings.sidecar.tick_s
        interval_s = min(usual_s, max(SOONEST_LOOK_S, self._due_in_s + SOONEST_LOOK_S))
        self.coordination.changed.wait(max(0.0, interval_s - took_s))
        self.coordination.changed.clear()


def _attempt_under_way(orders: Orders, attempt: int) -> int:
    """The job's, whether or not ranks of it are here: who leads may be a spare. -1: none is.

    attempt: that of the ranks which are here.
    """
    plan = orders.plan
    if plan is not None and plan.attempt > attempt:
        attempt = plan.attempt
    return attempt if _is_going_on(orders, attempt) else -1


def _is_going_on(orders: Orders, attempt: int) -> bool:
    """Whether the ranks of this attempt are meant to make progress.

    Once the plan has ended an attempt its ranks die by order. Without a plan (Redis away from the
    start, or a launcher of its own) there is no such word, so they are judged.
    """
    plan = orders.plan
    if plan is None or plan.attempt < attempt:
        return True
    return plan.attempt == attempt and plan.state in ("running", "evidence")
