"""Plays the scenario: waits for each event's moment, does it, and waits for what comes of it."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from holdfast_sidecar.demo import watching
from holdfast_sidecar.demo.looking import PATIENCE_S, find_within, look
from holdfast_sidecar.demo.nodes import Nodes, send_to_rank
from holdfast_sidecar.demo.outcome import Injected, Outcome, judge_fault, judge_save, where
from holdfast_sidecar.demo.scenario import Event, Kind, Scenario
from holdfast_sidecar.demo.screen import Screen
from holdfast_sidecar.demo.stopped import DemonstrationStopped
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.store.protocol import Store

T = TypeVar("T")


@dataclass
class Director:
    """One run of the scenario on nodes that were started already."""

    scenario: Scenario
    nodes: Nodes
    store: Store
    screen: Screen
    checkpoint_command: list[str]
    cluster: Cluster = field(default_factory=Cluster)
    outcomes: list[Outcome] = field(default_factory=list)

    def play(self) -> None:
        """Every event in turn, then the job's own end; fills `outcomes` as it goes."""
        for event in self.scenario.events:
            self.outcomes.append(self._play_event(event))
        self.wait_for("the job to finish", lambda: self.nodes.are_done() or None)

    def wait_for(self, what: str, find: Callable[[], T | None]) -> T:
        """Look at the job until `find` answers; DemonstrationStopped when it takes too long."""
        if (found := self._find_within(PATIENCE_S, find)) is None:
            raise DemonstrationStopped(f"waited {PATIENCE_S:g} s for {what}")
        return found

    def _play_event(self, event: Event) -> Outcome:
        moment = f"step {event.at_step}, to {event.kind.value}"
        self.wait_for(moment, lambda: self._is_time_for(event) or None)
        if event.kind is Kind.SAVE:
            return self._save(event)
        injected = self._hurt(event)
        # A fault that nobody notices is a row of the table, not the end of the demonstration.
        self._find_within(PATIENCE_S, lambda: self._has_recovered(injected) or None)
        return judge_fault(injected, watching.incident_of(self.cluster, injected))

    def _is_time_for(self, event: Event) -> bool:
        if self.nodes.are_done():
            raise DemonstrationStopped(f"the job ended before it was time to {event.kind.value}")
        step = watching.stepping(self.cluster)
        ready = watching.has_kept_work(self.cluster)
        return ready and step is not None and step >= event.at_step

    def _has_recovered(self, injected: Injected) -> bool:
        incident = watching.incident_of(self.cluster, injected)
        return incident is not None and incident.recovered_unix_s > 0

    def _hurt(self, event: Event) -> Injected:
        node = watching.node_of(self.cluster, event.rank)
        pid = watching.running_ranks(self.cluster)[event.rank].pid
        injected = self._injected(event, node)
        if event.kind is Kind.KILL_NODE:
            self.nodes.kill(node)
        elif event.kind is Kind.FREEZE_RANK:
            send_to_rank(pid, signal.SIGSTOP)
        else:
            send_to_rank(pid, signal.SIGKILL)
        self.screen.tell(f"→ {event.kind.value}: {where(injected)}, at step {injected.step}")
        return injected

    def _save(self, event: Event) -> Outcome:
        injected = self._injected(event, "")
        self.screen.tell(f"→ {event.kind.value}, at step {injected.step}")
        asking = subprocess.Popen(
            self.checkpoint_command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            self._find_within(PATIENCE_S, lambda: asking.poll() is not None or None)
        finally:
            asking.kill()
            answer, refusal = (said.decode(errors="replace") for said in asking.communicate())
        self._look()  # the last look may be older than the answer
        return judge_save(injected, watching.save_of(self.cluster, answer or refusal))

    def _injected(self, event: Event, node: str) -> Injected:
        plan = self.cluster.plan
        step = watching.stepping(self.cluster)
        assert plan is not None
        assert step is not None
        return Injected(event, node, step, plan.attempt, time.time())

    def _find_within(self, limit_s: float, find: Callable[[], T | None]) -> T | None:
        return find_within(limit_s, self._look, self.store, find)

    def _look(self) -> None:
        self.cluster = look(self.nodes, self.store, self.screen, self.cluster)
        self.screen.show(watching.progress(self.cluster, "with faults", self.scenario.steps))
