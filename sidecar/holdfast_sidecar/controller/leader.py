"""The leader's hands: carries out what `decisions` decided, and keeps the time for them.

Only stopwatches live here. Whatever must outlive this leader is in the store or beside the files.
"""

from __future__ import annotations

import dataclasses
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence

from holdfast_sidecar.checkpoint.ledger import NothingResumable
from holdfast_sidecar.checkpoint.writer.client import StorageUnanswered
from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.controller.accounting import GoodputKeeping
from holdfast_sidecar.controller.checkpoint_orders import CheckpointStorage, VerdictKeeping
from holdfast_sidecar.controller.checkpointing import CheckpointKeeping
from holdfast_sidecar.controller.fence import Stopwatch
from holdfast_sidecar.controller.snapshots import PeerKeeping, ResumePreview, SnapshotKeeping
from holdfast_sidecar.performance.stragglers.groups import find_places, read_roles
from holdfast_sidecar.policy import checkpoint_order, preemption, tracing
from holdfast_sidecar.policy.attached import attached_run
from holdfast_sidecar.policy.cluster import UNRESPONSIVE_FACTOR, Cluster
from holdfast_sidecar.policy.election import MemberSilence, is_deserted, taken_over
from holdfast_sidecar.policy.outcome import (
    Decision,
    DecisionContext,
    Endurance,
    SlowSince,
    Write,
    applied,
)
from holdfast_sidecar.policy.quarantine import RETURN
from holdfast_sidecar.policy.reconcile import decide
from holdfast_sidecar.policy.replacement import own_slowness, why_they_stay
from holdfast_sidecar.policy.running import preemption_of
from holdfast_sidecar.policy.start import FirstStart, is_fresh
from holdfast_sidecar.records.checkpoint import TraceOrder
from holdfast_sidecar.records.codec import decode, encode
from holdfast_sidecar.records.plan import TERMINAL, Incident, Plan, Request, Requeues
from holdfast_sidecar.records.steps import SlownessReport
from holdfast_sidecar.store.protocol import CURRENT, Lease, Section, Store, View

log = logging.getLogger(__name__)


# The leader's traces: one request after another, each from order to what the ranks took.
#
# Whom to trace, when, and what became of it is judged in `policy.tracing`.

TRACE = "trace"
"""Kind of the request."""

REARMINGS = 3
"""So often it is tried again, further ahead, when some rank heard of it too late."""

LEAST_DEADLINE_S = 1.0

UNREAD_S = 30.0
"""What came of an order is kept so long for who asked, who looks four times a second."""


class TraceKeeping:
    """What a leading sidecar does about traces; asked once per exchange."""

    def __init__(self, store: Store, settings: Settings, new_identifier: Callable[[], str]) -> None:
        self._store = store
        self._settings = settings
        self._new_identifier = new_identifier
        self._watch = Stopwatch()
        self._asked_s: dict[str, float] = {}
        """Request -> when it was first seen here."""

    def keep(self, lease: Lease, cluster: Cluster, plan: Plan, now: float) -> None:
        """Bring the traces that were asked for one step further. `now` is monotonic seconds."""
        order = cluster.trace
        self._forget_unwaited(lease, cluster, "" if order is None else order.request, now)
        if order is not None and order.state == "armed":
            self._follow(lease, cluster, plan, order, now)
        elif order is None or self._is_read(lease, cluster, order, now):
            self._consider(lease, cluster, plan, now)

    def _forget_unwaited(self, lease: Lease, cluster: Cluster, served: str, now: float) -> None:
        """Whoever was killed while waiting took nothing back: no ranks shall be traced for them
        when the job gets to it."""
        asked = {name: one for name, one in cluster.requests.items() if one.kind == TRACE}
        self._asked_s = {name: self._asked_s.get(name, now) for name in asked}
        for name, request in asked.items():
            waits_s = tracing.patience_s(request) + UNREAD_S
            if name != served and now - self._asked_s[name] > waits_s:
                known = cluster.request_texts[name]
                self._store.order(lease, Section.REQUESTS, name, None, known)

    def _follow(
        self, lease: Lease, cluster: Cluster, plan: Plan, order: TraceOrder, now: float
    ) -> None:
        armed_for = self._watch.elapsed("armed", order.identifier, now)
        request = cluster.requests.get(order.request)
        verdict = tracing.judge(
            order, plan, cluster.nodes, cluster.ranks(plan), request is not None, armed_for
        )
        if isinstance(verdict, tracing.Taken):
            ended = dataclasses.replace(order, state="taken", taken=list(verdict.ranks))
        elif isinstance(verdict, tracing.TraceVoid):
            ended = dataclasses.replace(order, state="void", reason=verdict.reason)
        elif isinstance(verdict, tracing.TraceTooLate):
            if request is not None and order.tries < REARMINGS and not request.at_step:
                self._arm(lease, cluster, plan, request, now, order.tries + 1)
                return
            ended = dataclasses.replace(order, state="void", reason=verdict.reason)
        else:
            return
        if self._write(lease, cluster, ended):
            log.info("trace of step %d: %s %s", order.step, ended.state, ended.reason)

    def _is_read(self, lease: Lease, cluster: Cluster, order: TraceOrder, now: float) -> bool:
        """Whether the next one may take its place; makes room for it then."""
        is_waited_for = order.request in cluster.requests
        if is_waited_for and self._watch.elapsed("unread", order.identifier, now) < UNREAD_S:
            return False
        if is_waited_for:
            known = cluster.request_texts[order.request]
            self._store.order(lease, Section.REQUESTS, order.request, None, known)
        self._write(lease, cluster, None)
        return False

    def _consider(self, lease: Lease, cluster: Cluster, plan: Plan, now: float) -> None:
        waiting = [r for r in cluster.requests.values() if r.kind == TRACE and not r.refused]
        ranks = cluster.ranks(plan)
        if not waiting or tracing.obstacle(plan, ranks):
            return
        oldest = min(waiting, key=lambda request: (request.at_unix_s, request.identifier))
        waited_s = now - self._asked_s[oldest.identifier]
        is_patient = waited_s < tracing.waits_for_times_s(oldest)
        if is_patient and tracing.awaits_times(oldest, ranks):
            return
        self._arm(lease, cluster, plan, oldest, now, tries=0)

    def _arm(
        self,
        lease: Lease,
        cluster: Cluster,
        plan: Plan,
        request: Request,
        now: float,
        tries: int,
    ) -> None:
        waited_s = now - self._asked_s[request.identifier]
        ranks = cluster.ranks(plan)
        margin = checkpoint_order.margin_s(self._settings.sidecar, tries)
        step = tracing.step_to_trace(request, ranks, margin)
        choice = tracing.choose(
            request, ranks, _roles(cluster, plan), _slowness(lease, cluster, plan)
        )
        for answer in (choice, step):
            if isinstance(answer, tracing.TraceRefused):
                self._refuse(lease, cluster, request, answer.reason)
                return
        assert isinstance(choice, tracing.TraceChoice)
        assert isinstance(step, int)
        order = TraceOrder(
            identifier=self._new_identifier(),
            attempt=plan.attempt,
            epoch=lease.epoch,
            step=step,
            steps=request.steps,
            state="armed",
            deadline_s=max(LEAST_DEADLINE_S, tracing.patience_s(request) - waited_s),
            request=request.identifier,
            ranks=choice.ranks,
            compared=choice.compared,
            why=choice.why,
            tries=tries,
        )
        if self._write(lease, cluster, order):
            log.info("ranks %s shall trace step %d: %s", order.ranks, order.step, order.why)

    def _refuse(self, lease: Lease, cluster: Cluster, request: Request, reason: str) -> None:
        """Tell whoever asked, who then removes the request."""
        told = encode(dataclasses.replace(request, refused=reason))
        known = cluster.request_texts[request.identifier]
        self._store.order(lease, Section.REQUESTS, request.identifier, told, known)

    def _write(self, lease: Lease, cluster: Cluster, order: TraceOrder | None) -> bool:
        text = None if order is None else encode(order)
        return self._store.order(lease, Section.TRACE, CURRENT, text, cluster.trace_text)


def _roles(cluster: Cluster, plan: Plan) -> dict[int, str]:
    """Rank -> with whom it is compared."""
    nodes = {name: node.ranks for name, node in cluster.nodes.items()}
    places = find_places(nodes, read_roles(plan, plan.attempt))
    return {rank: place.role for rank, place in places.items()}


def _slowness(lease: Lease, cluster: Cluster, plan: Plan) -> SlownessReport | None:
    """What the leading node's sidecar says of who is slow in this attempt."""
    told = [node.slow for node in cluster.nodes.values() if node.candidate == lease.candidate]
    return next((one for one in told if one is not None and one.attempt == plan.attempt), None)


LOOKING = "looking through the checkpoints"
GOING_BACK = "noting which checkpoints the job goes back behind"
RESCUING = "writing down the newest snapshot"

SETTLING_HEARTBEATS = 5.0
"""After a change of leader or server, reports may take this many beats to be back."""


class Leadership:
    """What one sidecar does while it leads; asked once per exchange."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        storage: CheckpointStorage,
        new_identifier: Callable[[], str] = lambda: secrets.token_hex(4),
        recall: Callable[[str], Incident | None] = lambda identifier: None,
        recall_requeues: Callable[[], Requeues] = Requeues,
    ) -> None:
        """recall: what this node's disk has of an incident, and of requeues."""
        self._store = store
        self._settings = settings
        self._storage = storage
        self._new_identifier = new_identifier
        self._recall = recall
        self._recall_requeues = recall_requeues
        self._requeued: tuple[int, Requeues] | None = None
        """As the disk had it when this lease began."""
        self._watch = Stopwatch()
        self._checkpoints = CheckpointKeeping(store, settings, storage, new_identifier)
        self._verdicts = VerdictKeeping(store, settings.checkpoint, storage)
        self._snapshots = SnapshotKeeping(store, settings)
        self._peers = PeerKeeping(store, settings, new_identifier)
        self._traces = TraceKeeping(store, settings, new_identifier)
        self._goodput = GoodputKeeping(store)
        self._outlook = ResumePreview(storage)
        self._endurance = Endurance()
        self._member_silence = MemberSilence()
        self._silent_s = 0.0
        self._forming = False
        self._first_start = FirstStart()
        self.waiting = ""
        self.staying: Mapping[str, str] = {}
        """Who is slow -> why its node is not replaced."""

    @property
    def slow_checkpoint(self) -> str:
        """The checkpoint that is still being written though the next was due; else empty."""
        return self._checkpoints.slow

    def witness(self, view: View, cluster: Cluster, now: float) -> View:
        """What every sidecar remembers of a reading, should it lead next; the view to be shown."""
        self._silent_s = self._member_silence.follow(cluster, view.server, now)
        return self._goodput.witness(view, cluster, now)

    def blink(self, now: float) -> None:
        """The store could not be asked."""
        self._goodput.blink(now)

    def lead(
        self,
        lease: Lease,
        cluster: Cluster,
        server: str,
        plan_seen: Plan | None,
        now: float,
        now_unix_s: float,
    ) -> None:
        """Bring the job one step closer to what it should be. Raises StoreUnavailable."""
        inherited = taken_over(cluster, lease.epoch)
        if not self._carry_out(lease, inherited):
            return
        cluster = applied(cluster, inherited)
        written = self._advance(lease, cluster, server, plan_seen, now, now_unix_s)
        self._goodput.keep(lease, applied(cluster, written), now, now_unix_s)

    def _advance(
        self,
        lease: Lease,
        cluster: Cluster,
        server: str,
        plan_seen: Plan | None,
        now: float,
        now_unix_s: float,
    ) -> Sequence[Write]:
        """The step itself; answers what was written for it."""
        plan, sidecar = cluster.plan, self._settings.sidecar
        settled_for = self._watch.elapsed("settling", f"{lease.epoch} {server}", now)
        ended = f"{plan.attempt} {plan.incident}" if plan and plan.state == "ended" else ""
        resumed = f"{ended} {plan.resumed_unix_s}" if plan and ended and not plan.pause else ""
        in_evidence = plan.incident if plan is not None and plan.state == "evidence" else ""
        circumstances = DecisionContext(
            epoch=lease.epoch,
            now=now,
            now_unix_s=now_unix_s,
            settings=self._settings,
            plan_seen=plan_seen,
            recalled=self._recalled(cluster),
            requeued=self._requeues_recalled(lease, cluster),
            settled=is_fresh(cluster, plan_seen)
            or settled_for >= SETTLING_HEARTBEATS * sidecar.heartbeat_s,
            out_of_patience=settled_for >= UNRESPONSIVE_FACTOR * sidecar.node_timeout_s,
            forming_for_s=self._watch.elapsed("forming", "yes" if self._forming else "", now),
            preempted_for_s=self._preempted_for_s(cluster, now),
            evidence_for_s=self._watch.elapsed("evidence", in_evidence, now),
            ended_for_s=self._watch.elapsed("ended", ended, now),
            awaiting_for_s=self._watch.elapsed("awaiting", resumed, now),
            new_identifier=self._new_identifier(),
            leader=lease.candidate,
            slow=self._slow_for(lease, cluster, now),
            start_s=self._first_start.follow(cluster, plan, now_unix_s),
            majority=self._settings.redis.url.partition(":")[0].endswith("+sentinel")
            and not is_deserted(cluster, self._silent_s),
        )
        self._checkpoints.count(lease, cluster)
        self._checkpoints.follow_writing(lease, cluster, now)
        self._verdicts.follow(lease, cluster)
        if self._will_ask(lease, cluster):
            self._storage.prepare()
        self.staying = {} if plan is None else why_they_stay(cluster, plan, circumstances)
        outcome = decide(cluster, circumstances)
        if outcome.needs_candidates:
            try:
                found = self._look_for_candidates(lease, cluster, circumstances, outcome)
            except StorageUnanswered:
                self._wait(LOOKING)
                return ()
            except OSError as error:
                # To start from nothing for want of a look would throw the job's work away.
                self._wait(f"the checkpoints can't be read: {error}")
                return ()
            if found is None:
                self._wait(RESCUING)
                return ()
            outcome = decide(cluster, found)
        elif stops_by_failure(outcome) and self._is_rescuing_last(lease, cluster, now):
            self._wait(RESCUING)
            return ()
        if self._verdicts.abandon(lease, cluster, outcome.abandoned, outcome.abandoned_for):
            self._wait(GOING_BACK)
            return ()
        self._forming = outcome.forming
        self._wait(outcome.waiting)
        if not self._carry_out(lease, outcome.writes):
            return ()  # a request whose answer was refused is answered next time
        if not self._changed_plan(outcome.writes):
            self._keep_checkpoints(lease, cluster, circumstances)
            self._keep_peers(lease, cluster, now)
            self._keep_traces(lease, cluster, now)
        self._forget_requests(lease, cluster)
        return outcome.writes

    def _recalled(self, cluster: Cluster) -> Incident | None:
        plan = cluster.plan
        if plan is None or plan.state not in ("evidence", "ended"):
            return None
        is_lost = bool(plan.incident) and plan.incident not in cluster.incidents
        return self._recall(plan.incident) if is_lost else None

    def _requeues_recalled(self, lease: Lease, cluster: Cluster) -> Requeues:
        """Read once, before a run: later the plan has it."""
        if cluster.plan is not None and cluster.plan.state not in TERMINAL:
            return Requeues()
        if self._requeued is None or self._requeued[0] != lease.epoch:
            self._requeued = lease.epoch, self._recall_requeues()
        return self._requeued[1]

    def _slow_for(self, lease: Lease, cluster: Cluster, now: float) -> Mapping[str, SlowSince]:
        plan = cluster.plan
        standing = None if plan is None else own_slowness(cluster, plan, lease.candidate)
        attempt = -1 if plan is None else plan.attempt
        return self._endurance.follow(standing, f"{lease.epoch} {attempt}", now)

    def _will_ask(self, lease: Lease, cluster: Cluster) -> bool:
        """Whether an attempt is to be opened for which storage has to be asked."""
        plan, order = cluster.plan, cluster.checkpoint
        if plan is None:
            return True
        must_settle = order is not None and order.state == "armed" and order.mode == "direct"
        knows = self._outlook.candidates(lease, cluster) is not None
        return plan.state in ("evidence", "ended") and (must_settle or not knows)

    def _preempted_for_s(self, cluster: Cluster, now: float) -> float:
        plan, policy = cluster.plan, self._settings.policy
        is_so = plan is not None and preemption.find(cluster, plan, policy, 0.0)
        key = str(plan.attempt) if plan is not None and is_so else ""
        return self._watch.elapsed("preempted", key, now)

    def _look_for_candidates(
        self, lease: Lease, cluster: Cluster, circumstances: DecisionContext, outcome: Decision
    ) -> DecisionContext | None:
        """Circumstances with what may be resumed from; None while the newest is written down."""
        if self._checkpoints.settle(lease, cluster):
            raise StorageUnanswered  # the order has changed: look again
        plan = cluster.plan
        resizes = (
            plan is not None and plan.state == "ended" and (plan.world_size != outcome.world_size)
        )
        if resizes and self._checkpoints.is_rescuing(lease, cluster, circumstances.now):
            return None
        known = self._outlook.candidates(lease, cluster) if outcome.has_snapshot else None
        if known is not None:
            return dataclasses.replace(circumstances, candidates=tuple(known))
        attempt = -1 if plan is None else plan.attempt
        try:
            found = tuple(self._storage.candidates(f"{lease.epoch} {attempt}"))
        except NothingResumable as obstacle:
            return dataclasses.replace(circumstances, candidates=(), unresumable=str(obstacle))
        return dataclasses.replace(circumstances, candidates=found)

    def _is_rescuing_last(self, lease: Lease, cluster: Cluster, now: float) -> bool:
        """Whether a job that fails for good is kept open until its newest snapshot is written."""
        is_down = cluster.plan is not None and cluster.plan.state == "ended"
        try:
            return is_down and (
                self._checkpoints.settle(lease, cluster)
                or self._checkpoints.is_rescuing(lease, cluster, now)
            )
        except StorageUnanswered:
            return True
        except OSError as error:
            log.warning("nothing is written down at the end, storage is away: %s", error)
            return False

    def _wait(self, why: str) -> None:
        if why and why != self.waiting:
            log.info("waiting: %s", why)
        self.waiting = why

    def _carry_out(self, lease: Lease, writes: Sequence[Write]) -> bool:
        """Do the writes in order; a refused one means the world moved on: look again next time."""
        for write in writes:
            done = self._store.order(lease, write.section, write.field, write.value, write.expected)
            if not done:
                log.info("a write to %s was refused, looking again", write.section.value)
                return False
            if write.section is Section.PLAN:
                log.info("plan: %s", write.value)
        return True

    @staticmethod
    def _changed_plan(writes: Sequence[Write]) -> bool:
        return any(write.section is Section.PLAN for write in writes)

    def _forget_requests(self, lease: Lease, cluster: Cluster) -> None:
        plan = cluster.plan
        if plan is None or plan.state not in TERMINAL:
            return
        for name, text in cluster.request_texts.items():
            asked = cluster.requests.get(name)
            if asked is None or asked.kind != RETURN:  # that one holds for the next attempt
                self._store.order(lease, Section.REQUESTS, name, None, text)

    def _keep_checkpoints(
        self, lease: Lease, cluster: Cluster, circumstances: DecisionContext
    ) -> None:
        if cluster.plan is not None and cluster.plan.state == "running":
            leaving = preemption_of(cluster, cluster.plan, circumstances)
            self._checkpoints.keep(lease, cluster, cluster.plan, circumstances, leaving)
            self._verdicts.keep(lease, cluster, cluster.plan, circumstances.now)
            self._snapshots.keep(lease, cluster, cluster.plan)
            self._outlook.keep(lease, cluster, circumstances.now)

    def _keep_traces(self, lease: Lease, cluster: Cluster, now: float) -> None:
        plan = cluster.plan or attached_run(cluster)
        if plan is not None and plan.state not in TERMINAL:
            self._traces.keep(lease, cluster, plan, now)

    def _keep_peers(self, lease: Lease, cluster: Cluster, now: float) -> None:
        if cluster.plan is not None and cluster.plan.state == "running":
            self._peers.keep(lease, cluster, cluster.plan, now)
        elif cluster.plan is not None and cluster.plan.state in TERMINAL:
            self._peers.conclude(lease, cluster)


def stops_by_failure(outcome: Decision) -> bool:
    """Whether this would end the job for good, and not because somebody asked for it."""
    plans = [decode(Plan, w.value) for w in outcome.writes if w.section is Section.PLAN and w.value]
    return any(p is not None and p.state == "stopped" and p.exit_code != 0 for p in plans)
