"""The leader's traces: one request after another, each from order to what the ranks took.

Whom to trace, when, and what became of it is judged in `decisions.tracing`.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable

from holdfast_sidecar.config.settings import Settings
from holdfast_sidecar.performance.stragglers.places import find_places, read_roles
from holdfast_sidecar.policy import checkpoint_order, tracing
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.checkpoint import TraceOrder
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import Plan, Request
from holdfast_sidecar.records.steps import SlowStanding
from holdfast_sidecar.stopwatch import Stopwatch
from holdfast_sidecar.store.protocol import CURRENT, Lease, Section, Store

log = logging.getLogger(__name__)

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
        elif isinstance(verdict, tracing.Void):
            ended = dataclasses.replace(order, state="void", reason=verdict.reason)
        elif isinstance(verdict, tracing.Late):
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
            request, ranks, _roles(cluster, plan), _standing(lease, cluster, plan)
        )
        for answer in (choice, step):
            if isinstance(answer, tracing.Refused):
                self._refuse(lease, cluster, request, answer.reason)
                return
        assert isinstance(choice, tracing.Choice)
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


def _standing(lease: Lease, cluster: Cluster, plan: Plan) -> SlowStanding | None:
    """What the leading node's sidecar says of who is slow in this attempt."""
    told = [node.slow for node in cluster.nodes.values() if node.candidate == lease.candidate]
    return next((one for one in told if one is not None and one.attempt == plan.attempt), None)
