"""Plays it: waits until all is known, kills the node, brings it back, and waits for each notice."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from holdfast_sidecar.demo import watching
from holdfast_sidecar.demo.looking import LOOK_EVERY_S, PATIENCE_S, find_within, look
from holdfast_sidecar.demo.nodes import Nodes
from holdfast_sidecar.demo.screen import Progress, Screen
from holdfast_sidecar.demo.stack.alerting import Alerting
from holdfast_sidecar.demo.stack.asking import holds, knows_the_job
from holdfast_sidecar.demo.stack.notices import all_clear, pages, watchdogs
from holdfast_sidecar.demo.stack.outcome import Killed
from holdfast_sidecar.demo.stack.receiver import Receiver
from holdfast_sidecar.demo.stack.scenario import (
    DOOMED,
    JOB,
    KNOWN_WITHIN_S,
    NODES,
    PAGED_WITHIN_S,
    RESOLVED_WITHIN_S,
)
from holdfast_sidecar.demo.stopped import DemonstrationStopped
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.plan import Incident
from holdfast_sidecar.store.protocol import Store

T = TypeVar("T")

WHAT = "on call"


@dataclass
class Director:
    """One run of it, on nodes that were started already."""

    nodes: Nodes
    store: Store
    screen: Screen
    receiver: Receiver
    alerting: Alerting | None = None
    """Once it runs."""
    cluster: Cluster = field(default_factory=Cluster)
    waiting: Progress = field(default_factory=lambda: Progress(WHAT, 0, 1))

    def await_training(self) -> None:
        """Every rank steps, and some of its work is kept."""
        self._wait_for("the ranks to step", PATIENCE_S, lambda: watching.stepping(self.cluster))
        self._wait_for(
            "a snapshot", PATIENCE_S, lambda: watching.has_kept_work(self.cluster) or None
        )

    def await_known(self, alerting: Alerting) -> None:
        """Prometheus knows the job well enough to miss a part of it, and its word gets through."""
        self.alerting = alerting
        prometheus = alerting.prometheus.url
        known = knows_the_job(JOB, len(NODES))
        self._wait_for(
            "Prometheus to know both nodes",
            KNOWN_WITHIN_S,
            lambda: holds(prometheus, known) or None,
        )
        self._wait_for(
            "the watchdog's word", KNOWN_WITHIN_S, lambda: watchdogs(self.receiver.heard()) or None
        )

    def kill(self) -> Killed:
        """As a power cut does it."""
        plan, step = self.cluster.plan, watching.stepping(self.cluster)
        assert plan is not None
        killed = Killed(DOOMED, plan.attempt, time.time())
        self.nodes.kill(DOOMED)
        self.screen.tell(f"→ kill node {DOOMED}, at step {step}; there is no spare")
        return killed

    def await_page(self) -> None:
        """Somebody is called; nobody is, and that is a row of the verdict."""
        paged = self._find_within(
            "somebody to be paged",
            PAGED_WITHIN_S,
            lambda: pages(self.receiver.heard(), JOB) or None,
        )
        for alert in paged[0].alerts if paged else ():
            self.screen.tell(f"paged: {alert.name}, node {alert.node or '-'}: {alert.summary}")

    def await_recovery(self, killed: Killed) -> None:
        """The node is back, and every rank steps again."""
        self._find_within(
            "every rank to step again",
            PATIENCE_S,
            lambda: self.has_recovered(killed) or None,
        )

    def await_all_clear(self) -> None:
        """Who was called is told that it is over; nobody was, and there is nothing to wait for."""
        if not pages(self.receiver.heard(), JOB):
            return
        clear = self._find_within(
            "the page to resolve",
            RESOLVED_WITHIN_S,
            lambda: all_clear(self.receiver.heard(), JOB),
        )
        if clear is not None:
            self.screen.tell("resolved")

    def incident(self, killed: Killed) -> Incident | None:
        """What Holdfast recorded of the kill."""
        return watching.incident_of_attempt(self.cluster, killed.attempt)

    def has_recovered(self, killed: Killed) -> bool:
        """Whether every rank steps again."""
        incident = self.incident(killed)
        return incident is not None and incident.recovered_unix_s > 0

    def stay(self) -> None:
        """Until Ctrl-C, or until a node or a program ends by itself (DemonstrationStopped)."""
        while True:
            self._look_quietly()
            self.store.wait(LOOK_EVERY_S)

    def _wait_for(self, what: str, limit_s: float, find: Callable[[], T | None]) -> T:
        if (found := self._find_within(what, limit_s, find)) is None:
            raise DemonstrationStopped(f"waited {limit_s:g} s for {what}")
        return found

    def _find_within(self, what: str, limit_s: float, find: Callable[[], T | None]) -> T | None:
        began = time.monotonic()

        def look_anew() -> None:
            waited = time.monotonic() - began
            said = f"waiting for {what}: {waited:.0f} s"
            details = watching.progress(self.cluster, WHAT, 1).details
            self.waiting = Progress(f"waiting for {what}", int(waited), int(limit_s), details, said)
            self._look_quietly()
            self.screen.show(self.waiting)

        return find_within(limit_s, look_anew, self.store, find)

    def _look_quietly(self) -> None:
        if self.alerting is not None:
            self.alerting.check()
        self.cluster = look(self.nodes, self.store, self.screen, self.cluster)
