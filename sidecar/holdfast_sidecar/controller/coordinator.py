"""The sidecar's thread that agrees with the other nodes; the node's own loop never waits for it.

Tells the store what the loop saw, reads what was agreed, leads when it is this node's turn, and
hands the loop the orders it may obey. While the store is away it only keeps trying.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from holdfast_sidecar import __version__
from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.controller.fence import FenceFile, SharedClock, Stopwatch
from holdfast_sidecar.controller.leader import Leadership
from holdfast_sidecar.linux.threads import start_thread
from holdfast_sidecar.policy import modes
from holdfast_sidecar.policy.attached import attached_run
from holdfast_sidecar.policy.budget import EXIT_REQUEUE
from holdfast_sidecar.policy.cluster import (
    COUNTED_BEATS,
    Beat,
    Cluster,
    Heartbeats,
    StepBegins,
    beats,
    parse_cluster,
)
from holdfast_sidecar.policy.election import (
    DuplicateSidecar,
    DuplicateSidecarWatch,
    is_leaving,
    is_taken,
    refusal,
    who_watches,
    why_gone,
)
from holdfast_sidecar.policy.formation import awaited, find_unchecked, judge_admission
from holdfast_sidecar.policy.start import (
    Witnesses,
    find_absent,
    is_fresh,
    judge_presence,
    judged,
    next_due_s,
    step_counts,
    suspects,
)
from holdfast_sidecar.records.checkpoint import (
    AttemptKey,
    CheckpointOrder,
    PeerOrder,
    SavedPart,
    SnapshotOrder,
    SnapshotReport,
    TraceOrder,
)
from holdfast_sidecar.records.codec import decode, incarnation_in
from holdfast_sidecar.records.findings import Finding
from holdfast_sidecar.records.plan import TERMINAL, Plan
from holdfast_sidecar.records.reports import GateVerdict, LifeSign, NodeReport
from holdfast_sidecar.records.steps import SlownessReport
from holdfast_sidecar.store.orders import LocalState, Orders
from holdfast_sidecar.store.protocol import (
    ENDED_TTL_S,
    RUNNING_TTL_S,
    Bid,
    ExchangeGuard,
    Lease,
    OwnReport,
    Section,
    Store,
    StoreUnavailable,
    View,
    WakeUp,
    without_secrets,
)

log = logging.getLogger(__name__)

Fenced = TypeVar("Fenced", CheckpointOrder, SnapshotOrder, PeerOrder, TraceOrder)

LISTEN_S = 2.0
"""One wait of the listener: how long its thread may outlive a stop."""

DUE_MARGIN_S = 0.002
"""So much later than a deadline it is looked at: a wait may end a little early."""

HEARD_BEATS = 2.5
"""Within so many beats every living sidecar has reported, one slow call included."""

FIRST_LOOK_S = 1.0
"""For the loop's first look at the node, which takes a tenth of that; a driver that hangs then must
not keep the node silent."""

KEEP_EVERY_S = 60.0
"""How often the keys' lifetimes are refreshed: far more often than they end."""


@dataclasses.dataclass(frozen=True)
class NodeIdentity:
    """This sidecar, as the others see it."""

    node: str
    incarnation: str
    pid: int
    boot: str = ""
    """See NodeReport."""
    job: str = ""
    host: str = ""
    predecessor: str = ""
    """Incarnation that is known to be gone: it had this node's lock before."""


@dataclasses.dataclass(frozen=True)
class ReportedState:
    """What the loop told last."""

    state: LocalState
    news: str
    """What of it is worth waking the others for."""


class RoundTripLiveness(Protocol):
    """Asks other sidecars whether their nodes live, whatever the store says."""

    def watch(self, nodes: frozenset[str], suspects: frozenset[str]) -> None:
        """Ask these now and then, and the suspects among them closely."""

    def heard(self) -> Mapping[str, LifeSign]:
        """What came of it, by node."""


class NoRoundTrips:
    """Nobody is asked, so nobody's silence means anything."""

    def watch(self, nodes: frozenset[str], suspects: frozenset[str]) -> None:
        """Nobody."""

    def heard(self) -> Mapping[str, LifeSign]:
        """Nothing."""
        return {}


class Coordinator(threading.Thread):
    """One exchange with the store per heartbeat, or sooner when something changed."""

    def __init__(
        self,
        store: Store,
        identity: NodeIdentity,
        settings: Settings,
        leadership: Leadership,
        fence: FenceFile,
        clock: Callable[[], float] = time.monotonic,
        round_trips: RoundTripLiveness | None = None,
    ) -> None:
        super().__init__(name="coordinator", daemon=True)
        self._store = store
        self._identity = identity
        self._settings = settings
        self._modes = modes.explicit(settings.modes)
        self._leadership = leadership
        self._fence = fence
        self._clock = clock
        # A judge that was away for a whole deadline gives everyone all of it anew.
        self._heartbeats = Heartbeats(
            counted_s=COUNTED_BEATS * settings.sidecar.heartbeat_s,
            late_after_s=settings.sidecar.node_timeout_s,
        )
        self._steps = StepBegins(settings.sidecar.tick_s)
        self._round_trips = NoRoundTrips() if round_trips is None else round_trips
        self._watch = Stopwatch()
        self._shared_clock = SharedClock(store.time)
        self._due_at = float("inf")
        self._newest = _with_news(LocalState(launcher_alive=True, launcher_pid=0, attempt=-1))
        self._own = OwnReport()
        self._orders = Orders()
        self._plan_seen: Plan | None = None
        self._plan_refused: Plan | None = None
        self._epoch_seen, self._leader_seen = fence.fence.epoch, ""
        self._lease_held: Lease | None = None
        self._guard = ExchangeGuard(log)
        self._beat = 0
        self._has_spoken, self._found_no_store = False, False
        self._found_at: float | None = None
        self._namesakes = DuplicateSidecarWatch(
            Heartbeats(
                counted_s=COUNTED_BEATS * settings.sidecar.heartbeat_s,
                late_after_s=settings.sidecar.node_timeout_s,
            ),
            settings.sidecar.node_timeout_s,
        )
        self._namesake = ""
        self._gone = {identity.predecessor} - {""}
        self.refusal = ""
        """Why this sidecar has to leave: another one watches the node. Empty: it need not."""
        self.give_way: Callable[[], object] = lambda: None
        """Called once there is a refusal."""
        self._inherited: SlownessReport | None = None
        self._told = ""
        self._kept_at = float("-inf")
        self._kept_for_s = 0.0
        self._is_told = threading.Event()
        """Whether the loop has looked at the node."""
        self._stopping = threading.Event()
        self._look_again = threading.Event()
        self._listener: threading.Thread | None = None
        self.changed = threading.Event()

    def tell(self, state: LocalState) -> None:
        """Hand over the loop's newest picture of the node; news is sent at once."""
        before, self._newest = self._newest, _with_news(state)
        self._is_told.set()
        if self._newest.news != before.news:
            self._look_again.set()

    def look(self) -> None:
        """Something was answered: exchange at once, and let the loop look too."""
        self._look_again.set()
        self.changed.set()

    def orders(self) -> Orders:
        """What was last agreed on."""
        return self._orders

    @property
    def waiting(self) -> str:
        """Why the leader, if it is this sidecar, takes no step yet; else empty."""
        return "" if self._lease_held is None else self._leadership.waiting

    def stop(self) -> None:
        """Give up the lease and end the thread."""
        self._stopping.set()
        self._is_told.set()
        self._look_again.set()
        self.join(timeout=2 * self._settings.redis.timeout_s + 1)

    def run(self) -> None:
        """Exchange until stopped, once there is something to report: who has just started may lead
        at once, and must not decide as if nothing lay in this node's slots."""
        self._is_told.wait(FIRST_LOOK_S)
        while not self._stopping.is_set():
            if self._listener is None:  # without it wake-ups are heard at the next heartbeat
                self._listener = start_thread(self._listen, "listener")
            self._look_again.clear()
            error = self._guard.run(lambda: self.exchange(self._clock(), time.time()))
            if error is not None:
                self._lose_store(error)
                self._stopping.wait(self._settings.sidecar.heartbeat_s)
            self._look_again.wait(self._rest_s())
        self._lead_once_more()
        try:
            self._store.resign(self._candidate)
        except StoreUnavailable:
            log.info("the store is away; the lease will run out by itself")

    def _lead_once_more(self) -> None:
        """Where all leave at once, what a launcher said last is heard by nobody else."""
        if self._lease_held is None or not self._orders.store_up:
            return
        if self._guard.run(lambda: self.exchange(self._clock(), time.time())) is None:
            self._guard.run(self._read_once_more)

    def _read_once_more(self) -> None:
        """An exchange reads before it leads; what it wrote then has to reach this node's disk."""
        self._replace(dataclasses.replace(self._orders, view=self._store.read(), nodes=None))

    def exchange(self, now: float, now_unix_s: float) -> None:
        """Report, read, lead if it is our turn, and update the orders. Raises StoreUnavailable."""
        began = self._clock()
        if not self._may_begin(now):
            return
        lease, view = self._ask()
        cluster = parse_cluster(view, self._own.recognise)
        view = without_secrets(view)
        answered = now + self._clock() - began
        holder = incarnation_in(view.section(Section.NODES).get(self._identity.node, ""))
        if holder not in (None, self._identity.incarnation):
            self._stand_back(cluster.nodes.get(self._identity.node), holder, view, (now, answered))
            return
        self._has_spoken, self._namesake = True, ""
        self._observe(cluster, view.server, now, answered)
        if any(one.slow for name, one in cluster.nodes.items() if name != self._identity.node):
            self._inherited = None
        lease = self._follow_on(cluster, lease, now)
        leads = lease.candidate == self._candidate
        self._lease_held = lease if leads else None
        absent: tuple[Finding, ...] = ()
        names = judged(cluster, self._identity.node, lease.candidate.rpartition("/")[0])
        witnesses = self._ask_witnesses(cluster, names, now)
        if leads:
            cluster = self._judge_presence(cluster, witnesses, now)
            timeout_s = self._settings.sidecar.node_timeout_s
            absent = (
                *find_absent(cluster, self._heartbeats, timeout_s, now, now_unix_s),
                *find_unchecked(cluster, now_unix_s),
            )
        view = self._leadership.witness(view, cluster, now)
        self._obey(cluster, view, lease, absent, now)
        leader = lease.candidate.rpartition("/")[0]
        followed = {leader, *names} if self._lease_held is None else {*cluster.agents}
        due_s = next_due_s(cluster, followed, witnesses, self._settings.sidecar, now)
        self._due_at = now + due_s
        known_for_s = self._watch.elapsed("server", view.server, now)
        if leads and self._may_act(cluster, known_for_s):
            shared_s = self._shared_clock.unix_s(lease.epoch, now)
            self._leadership.lead(lease, cluster, view.server, self._plan_seen, now, shared_s)
        self._keep(cluster, now)

    def _may_begin(self, now: float) -> bool:
        """A sidecar that found no store at its start lets one of the same name, which spoke before,
        speak first on a server that came back empty."""
        if self._has_spoken or not self._found_no_store:
            return True
        if self._identity.node in self._store.read((Section.NODES,)).section(Section.NODES):
            return True
        if self._found_at is None:
            self._found_at = now
        return now - self._found_at >= HEARD_BEATS * self._settings.sidecar.heartbeat_s

    def _stand_back(
        self, other: NodeReport | None, holder: str, view: View, asked: tuple[float, float]
    ) -> None:
        """Another sidecar has this node's place: until it is gone there is no store for this one,
        and where it stays this one leaves, unless it does so soon in any case."""
        self._lease_held, self._due_at, self._told = None, float("inf"), ""
        self._replace(dataclasses.replace(self._orders, store_up=False, is_leader=False, absent=()))
        job, boot = self._identity.job, self._identity.boot
        if other is not None and holder != self._namesake:
            self._namesake = holder
            log.warning("%s: standing back", who_watches(other, job, boot))
        judged = other and self._namesakes.judge(other, view.server, *asked)
        if other is None or judged is DuplicateSidecar.GONE:
            log.info("that sidecar is gone: this one speaks for the node")
            self._gone.add(holder)
            self._look_again.set()
        elif (
            judged is DuplicateSidecar.STAYS
            and not is_leaving(self._newest.state)
            and not self.refusal
        ):
            self.refusal = refusal(other, job, boot)
            self.give_way()

    def _follow_on(self, cluster: Cluster, lease: Lease, now: float) -> Lease:
        """Take the lease of a leader that is gone, and no epoch that anybody else ever had."""
        timeout_s = self._settings.sidecar.node_timeout_s
        if lease.candidate != self._candidate:
            why = why_gone(cluster, lease.candidate, self._heartbeats, timeout_s, now)
            if not why:
                return lease
            log.info("leader %s is gone: %s", lease.candidate, why)
            lease = self._campaign(self._epoch_seen, deposed=lease.candidate)
            if lease.candidate != self._candidate:
                return lease
        others = [n for n in cluster.nodes.values() if n.node != self._identity.node]
        if not is_taken(lease, others, is_new=lease != self._lease_held):
            return lease
        return self._campaign(max(node.floor_epoch for node in others) + 1)

    def _may_act(self, cluster: Cluster, known_for_s: float) -> bool:
        """On a server that is new to it a leader first hears everybody: what it granted may have
        been granted before by the one that it took the place of."""
        is_alone = cluster.nodes.keys() <= {self._identity.node}
        is_heard = known_for_s >= HEARD_BEATS * self._settings.sidecar.heartbeat_s
        return is_heard or is_alone or is_fresh(cluster, self._plan_seen)

    def _observe(self, cluster: Cluster, server: str, asked: float, answered: float) -> None:
        """Take in what this reading shows of who lives."""
        self._heartbeats.observe(beats(cluster), server, asked, answered)
        if (plan := cluster.plan) is not None:
            told = {name: Beat(n.incarnation, n.beat) for name, n in cluster.nodes.items()}
            self._steps.observe(plan.attempt, step_counts(cluster, plan), told, asked)

    def _ask_witnesses(self, cluster: Cluster, names: frozenset[str], now: float) -> Witnesses:
        """What is known of these nodes besides, which are asked on meanwhile."""
        known = Witnesses(self._heartbeats, self._steps, self._round_trips.heard())
        of_them = suspects(cluster, names, known, self._settings.sidecar, now)
        self._round_trips.watch(names, of_them)
        return known

    def _judge_presence(self, cluster: Cluster, witnesses: Witnesses, now: float) -> Cluster:
        present = judge_presence(cluster, witnesses, self._settings.sidecar, now)
        waited_s = {
            agent.node: self._watch.elapsed(f"gate {agent.node}", awaited(agent, present), now)
            for agent in present.waiting()
        }
        return judge_admission(present, waited_s, self._settings)

    def _rest_s(self) -> float:
        """Until the next heartbeat, or until somebody may have been silent for too long."""
        due_s = max(0.0, self._due_at - self._clock()) + DUE_MARGIN_S
        return min(self._settings.sidecar.heartbeat_s, due_s)

    @property
    def incarnation(self) -> str:
        """Which of this node's sidecars this is."""
        return self._identity.incarnation

    @property
    def _candidate(self) -> str:
        return f"{self._identity.node}/{self._identity.incarnation}"

    def _campaign(self, floor: int, deposed: str = "") -> Lease:
        lease_s = self._settings.sidecar.lease_s
        return self._noted(self._store.campaign(self._candidate, lease_s, floor, deposed))

    def _noted(self, lease: Lease) -> Lease:
        if lease.epoch > self._epoch_seen:
            self._epoch_seen, self._leader_seen = lease.epoch, lease.candidate
        return lease

    def _ask(self) -> tuple[Lease, View]:
        """Report, campaign, read."""
        newest = self._newest
        state = newest.state
        if self._beat == 0:
            self._inherited = self._left_behind()
        self._beat += 1
        report = NodeReport(
            node=self._identity.node,
            incarnation=self._identity.incarnation,
            beat=self._beat,
            floor_attempt=self._fence.fence.attempt,
            floor_epoch=self._epoch_seen,
            floor_leader=self._leader_seen,
            attempt=state.attempt,
            launcher_alive=state.launcher_alive,
            launcher_pid=state.launcher_pid,
            ranks=state.ranks,
            findings=state.findings,
            doubts=state.doubts,
            traces=state.traces,
            evidence_for=state.evidence_for,
            where_ranks_stood=dict(state.where_ranks_stood),
            bundles=dict(state.bundles),
            saved=state.saved,
            metrics_address=state.metrics_address,
            unserved=state.unserved,
            echo_address=state.echo_address,
            mode=self._settings.sidecar.mode,
            modes=self._modes,
            pid=self._identity.pid,
            version=__version__,
            waiting=self.waiting,
            staying={} if self._lease_held is None else dict(self._leadership.staying),
            snapshot=state.snapshot,
            preempted_by=state.preempted_by,
            attached=state.attached,
            checkpoint=None if self._lease_held is None else self._settings.checkpoint,
            boot=self._identity.boot,
            host=self._identity.host,
            hooks=dict(state.hooks),
            gate=state.gate,
            exertion=state.exertion,
            steps=state.steps,
            slow=state.slow or self._inherited,
            traced=state.traced,
        )
        lease_s = self._settings.sidecar.lease_s
        lease, view = self._store.exchange(
            self._identity.node,
            self._own.spell(report),
            Bid(self._candidate, lease_s, self._epoch_seen),
            wake=newest.news != self._told,
            instead_of=self._gone,
        )
        self._told = newest.news
        return self._noted(lease), view

    def _left_behind(self) -> SlownessReport | None:
        """What an earlier sidecar of this node told of who is slow: our first report takes its
        place, and where nobody else told any, its totals go on from there."""
        texts = self._store.read((Section.NODES,)).section(Section.NODES)
        report = decode(NodeReport, texts.get(self._identity.node, ""))
        return None if report is None else report.slow

    def _obey(
        self,
        cluster: Cluster,
        view: View,
        lease: Lease,
        absent: tuple[Finding, ...],
        asked_at: float,
    ) -> None:
        leads = self._lease_held is not None
        plan = cluster.plan
        if plan is not None and not self._fence.obey(plan.attempt, plan.epoch):
            if plan != self._plan_refused:
                log.warning("refused a stale plan: attempt %d, epoch %d", plan.attempt, plan.epoch)
            self._plan_refused, plan = plan, None
        if plan is not None:
            if plan != self._plan_seen and plan.incident:
                log.info("heard: attempt %d is %s: %s", plan.attempt, plan.state, _trouble(plan))
            self._plan_seen = plan
        order = self._admitted(cluster.checkpoint, plan)
        self._replace(
            Orders(
                plan=plan if plan is not None else self._orders.plan,
                checkpoint=order,
                snapshot=self._admitted(cluster.snapshot, plan),
                peer=self._admitted(cluster.peer, plan),
                trace=self._admitted(cluster.trace, plan or attached_run(cluster)),
                key=_of_attempt(cluster.key, plan),
                skipped=self._leadership.slow_checkpoint if leads else "",
                candidate=self._candidate,
                is_leader=leads,
                leads_until_s=asked_at + self._led_for_s(),
                lease=lease,
                store_up=True,
                view=view,
                nodes=cluster.nodes,
                stale=self._stale(cluster, asked_at),
                is_alone=cluster.is_alone(self._identity.node),
                unwritten=self._fence.obstacle,
                absent=absent,
            )
        )

    def _stale(self, cluster: Cluster, now: float) -> frozenset[str]:
        timeout_s = self._settings.sidecar.node_timeout_s
        return frozenset(
            name
            for name in cluster.nodes
            if self._heartbeats.still_for(f"node/{name}", now) >= timeout_s
        )

    def _led_for_s(self) -> float:
        """How long after a beat nobody else leads: the others depose a leader whose beats stop, or
        its lease runs out."""
        return min(self._settings.sidecar.node_timeout_s, self._settings.sidecar.lease_s)

    def _admitted(self, order: Fenced | None, plan: Plan | None) -> Fenced | None:
        if order is None or plan is None:
            return None
        if isinstance(order, CheckpointOrder) and order.state == "writing":
            # It needs no rank, so it may be of an attempt that is over; who leads has to want it.
            return order if order.epoch >= self._fence.fence.epoch else None
        if order.attempt != plan.attempt:
            return None
        return order if self._fence.fence.admits(order.attempt, order.epoch) else None

    def _replace(self, orders: Orders) -> None:
        before = self._orders
        self._orders = orders
        if _wanted(before) != _wanted(orders):
            self.changed.set()

    def _lose_store(self, error: Exception) -> None:
        self._leadership.blink(self._clock())
        is_away = isinstance(error, StoreUnavailable)
        self._found_no_store |= is_away
        if is_away and self._orders.store_up:
            log.warning("the store is away, nothing cluster-wide is decided: %s", error)
        self._replace(dataclasses.replace(self._orders, store_up=False, is_leader=False, absent=()))
        if not is_away:
            # Whoever has an error of its own can't lead, and must not keep others from it.
            with contextlib.suppress(StoreUnavailable):
                self._store.resign(self._candidate)

    def _listen(self) -> None:
        """Turn the store's wake-ups into a look at once, until stopped."""
        while not self._stopping.is_set():
            try:
                heard = self._store.wait(LISTEN_S)
                # Reports are for who leads; a follower needs none sooner than its next heartbeat.
                if WakeUp.ORDERS in heard or (heard and self._orders.is_leader):
                    self._look_again.set()
            except StoreUnavailable:
                self._stopping.wait(self._settings.sidecar.heartbeat_s)

    def _keep(self, cluster: Cluster, now: float) -> None:
        plan = cluster.plan
        # What is to be started again may wait in a queue: its next run goes on from this plan.
        is_over = plan is not None and plan.state in TERMINAL and plan.exit_code != EXIT_REQUEUE
        ttl_s = ENDED_TTL_S if is_over else RUNNING_TTL_S
        if now - self._kept_at >= KEEP_EVERY_S or ttl_s != self._kept_for_s:
            self._store.keep(ttl_s)
            self._kept_at, self._kept_for_s = now, ttl_s


def _trouble(plan: Plan) -> str:
    """What the plan says of its incident, in a line for the log."""
    ranks = f", ranks {plan.culprit_ranks}" if plan.culprit_ranks else ""
    where = f" on node {plan.culprit_node}" if plan.culprit_node else ""
    return f"{plan.cause}{ranks}{where}, incident {plan.incident}"


def _of_attempt(key: AttemptKey | None, plan: Plan | None) -> AttemptKey | None:
    return key if key is not None and plan is not None and key.attempt == plan.attempt else None


def _wanted(orders: Orders) -> tuple[object, ...]:
    """What the loop shall not wait a tick for."""
    return (
        orders.plan,
        orders.checkpoint,
        orders.snapshot,
        orders.peer,
        orders.trace,
        orders.key,
        orders.store_up,
        [finding.key for finding in orders.absent],
    )


def _saved_news(saved: SavedPart | None) -> object:
    """Not the bytes, which move all the time."""
    return None if saved is None else dataclasses.replace(saved, done_bytes=0)


def _snapshot_news(snapshot: SnapshotReport | None) -> object:
    """Not the steps, which move all the time: what somebody waits for."""
    if snapshot is None:
        return None
    return (
        snapshot.attempt,
        snapshot.slots,
        snapshot.wants,
        snapshot.obstacle,
        snapshot.copied_for,
        snapshot.pulled,
        snapshot.peer_address,
    )


def _gate_news(verdict: GateVerdict | None) -> object:
    """Not the reasons, whose figures move: what somebody waits for."""
    return None if verdict is None else (verdict.state, verdict.after)


def _with_news(state: LocalState) -> ReportedState:
    return ReportedState(state, _news(state))


def _news(state: LocalState) -> str:
    """What is worth waking the others for: everything but steps, ages and measurements."""
    return repr(
        (
            state.launcher_alive,
            state.attempt,
            [(f.key, f.acts) for f in state.findings],
            state.doubts,
            state.traces,
            state.evidence_for,
            state.hooks,
            _saved_news(state.saved),
            _snapshot_news(state.snapshot),
            state.traced,
            state.preempted_by,
            state.echo_address,
            _gate_news(state.gate),
            state.exertion,
            [
                (
                    *(r.rank, r.alive, r.ending, r.state_registered, r.resume_failures),
                    *(r.step > 0, r.step_s > 0),
                )
                for r in state.ranks
            ],
        )
    )
