"""Plays the stories: hurts the hardware, and waits for what Holdfast makes of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from holdfast_sidecar.demo import watching
from holdfast_sidecar.demo.hardware.faults import Faults
from holdfast_sidecar.demo.hardware.outcome import Done, Row, Seen, judge
from holdfast_sidecar.demo.hardware.scenario import NODES, STEPS_LEFT, Story
from holdfast_sidecar.demo.hardware.sight import find, is_over, is_settled, missing
from holdfast_sidecar.demo.looking import PATIENCE_S, find_within, look
from holdfast_sidecar.demo.nodes import Nodes
from holdfast_sidecar.demo.screen import Progress, Screen
from holdfast_sidecar.demo.stopped import DemonstrationStopped
from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.store.protocol import Store

T = TypeVar("T")

SETTLED_STEP = 10
"""Before this nothing is done: what a rank usually takes is not known yet."""


@dataclass
class Director:
    """One run of the stories on nodes that were started already."""

    stories: tuple[Story, ...]
    nodes: Nodes
    store: Store
    screen: Screen
    faults: Faults
    cluster: Cluster = field(default_factory=Cluster)
    rows: list[Row] = field(default_factory=list)
    awaited: str = ""
    """What it waits for now."""

    def play(self) -> None:
        """Every story in turn, then a while of the job's own; fills `rows` as it goes."""
        self.wait_for("the first steps", lambda: self._has_stepped(SETTLED_STEP) or None)
        for story in self.stories:
            self.rows.append(self._play(story))
        at = watching.stepping(self.cluster) or 0
        self.wait_for("further steps", lambda: self._has_stepped(at + STEPS_LEFT) or None)

    def pid_of(self, rank: int) -> int:
        """Process of a rank of the running attempt."""
        return watching.running_ranks(self.cluster)[rank].pid

    def wait_for(self, what: str, search: Callable[[], T | None]) -> T:
        """Look at the job until `search` answers; DemonstrationStopped when it takes too long."""
        self.awaited = what
        if (found := self._find_within(PATIENCE_S, search)) is None:
            raise DemonstrationStopped(f"waited {PATIENCE_S:g} s for {what}")
        return found

    def _play(self, story: Story) -> Row:
        self.wait_for("every rank to step", lambda: watching.stepping(self.cluster))
        self.faults.tell_users(len(watching.running_ranks(self.cluster)))
        done = self._begin(story)
        hurt = self.faults.begin(story.fault, story.gpu)
        seen: list[Seen] = [Seen()]
        self.awaited = missing(done, seen[0])

        def settled() -> bool | None:
            seen[0] = find(self.cluster, done, seen[0], time.time())
            self.awaited = missing(done, seen[0])
            return is_settled(done, seen[0]) or None

        self._find_within(PATIENCE_S, settled)
        hurt.heal()
        if story.blinds:
            self.awaited = f"the end of {story.fault.value}"
            self._find_within(PATIENCE_S, lambda: is_over(self.cluster, done) or None)
        return judge(done, find(self.cluster, done, seen[0], time.time()))

    def _begin(self, story: Story) -> Done:
        plan = self.cluster.plan
        assert plan is not None
        step = watching.stepping(self.cluster) or 0
        where = f"GPU {story.gpu} of node {NODES[0]}" if story.ranks else f"node {NODES[0]}"
        self.screen.tell(f"→ {story.fault.value}: {where}, at step {step}")
        return Done(story, NODES[0], step, plan.attempt, time.time())

    def _has_stepped(self, to: int) -> bool:
        step = watching.stepping(self.cluster)
        return step is not None and step >= to

    def _find_within(self, limit_s: float, search: Callable[[], T | None]) -> T | None:
        return find_within(limit_s, self._look, self.store, search)

    def _look(self) -> None:
        self.cluster = look(self.nodes, self.store, self.screen, self.cluster)
        self.screen.show(self._progress())

    def _progress(self) -> Progress:
        done, all_of_them = len(self.rows), len(self.stories)
        step = watching.stepping(self.cluster)
        at = "no rank steps yet" if step is None else f"at step {step}"
        said = f"{done} of {all_of_them} stories done, {at}, waiting for {self.awaited}"
        shown = watching.progress(self.cluster, "on fake GPUs", 0)
        details = (f"waiting for {self.awaited}", *shown.details)
        return Progress(f"{done} of {all_of_them} stories", done, all_of_them, details, said)
