"""Follows the steps of this node's ranks, and where it is ours to judge, who of all is slow.

The leading node's sidecar judges; while the store is away each one does, of its own ranks. What it
came to is told to all, and whoever leads next goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from holdfast_sidecar.components.gpu.ownership import Ownership
from holdfast_sidecar.components.machine import MachineReading
from holdfast_sidecar.config.settings import StragglerSettings
from holdfast_sidecar.detectors.slowness import find_slow
from holdfast_sidecar.ranks.observation import RankHistory
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.findings import Finding
from holdfast_sidecar.records.reports import NodeReport, ProbeHealth, RankReport
from holdfast_sidecar.records.steps import SlowStanding, StepLine, parse
from holdfast_sidecar.roles import read_roles
from holdfast_sidecar.slowness_judging import Judge, Judging
from holdfast_sidecar.store.orders import Orders
from holdfast_sidecar.stragglers.surroundings import count, surround
from holdfast_sidecar.stragglers.windows import Windows


@dataclass(frozen=True)
class OwnNode:
    """What this node has to say of itself, beside its lines."""

    attempt: int
    """The one to be judged; -1: none is under way."""
    ranks: Sequence[RankReport]
    """Those that are in it: none where this node is a spare, or was put outside."""
    findings: Sequence[Finding]


@dataclass
class SlownessAttention:
    """One sidecar's. Without a judge steps are told, and nobody is judged here."""

    settings: StragglerSettings = field(default_factory=StragglerSettings)
    make_judge: Callable[[], Judge] | None = None
    steps: list[str] = field(default_factory=list)
    """What others are told of this node's ranks."""
    standing: SlowStanding | None = None
    """What was judged here last, until whoever leads has judged."""
    _windows: Windows = field(default_factory=Windows)
    _fresh: list[StepLine] = field(default_factory=list)
    """Lines that came with the newest look."""
    _judging: Judging | None = None
    _leads: bool = False
    """Also while the store is away, if it did before."""

    def see(
        self,
        ranks: Mapping[int, RankHistory],
        machine: MachineReading,
        gpus: Ownership,
        moment: Moment,
    ) -> None:
        """Take in the new records. ranks: those that were looked at just now."""
        if self.settings.enabled:
            looks = [history.look for history in ranks.values()]
            around = surround(looks, machine, gpus)
            self._fresh = self._windows.follow(looks, count(looks, machine), around)
            self.steps = self._windows.tell(moment.now_s)

    def judge(self, orders: Orders, own: OwnNode, moment: Moment) -> list[Finding]:
        """Who is slow, where that is ours to say."""
        if not self.settings.enabled or self.make_judge is None or own.attempt < 0:
            return []
        nodes = (orders.nodes or {}) if orders.store_up else {}
        if orders.store_up and not orders.is_leader:
            self._stand_down(orders, nodes)
            return []
        if orders.is_leader and not self._leads:
            self._judging, self._leads = None, True
        judging = self._judging or self._begin(self.make_judge, nodes)
        if judging.turn_to(own.attempt) and own.ranks:
            judging.gathering.add(line for text in self.steps if (line := parse(text)) is not None)
        self._gather(judging, orders, own, moment.node)
        self.standing = judging.follow(moment)
        return list(find_slow(self.standing, own.attempt, self.settings, moment.now_unix_s))

    def health(self) -> tuple[ProbeHealth, ...]:
        """How the judging fares, where it is done here."""
        return () if self._judging is None else (self._judging.runner.health,)

    def _begin(self, make_judge: Callable[[], Judge], nodes: Mapping[str, NodeReport]) -> Judging:
        """Totals only grow: who told the largest judged last, or took over from who did."""
        told = [self.standing, *(node.slow for node in nodes.values())]
        known = [standing for standing in told if standing is not None]
        newest = max(known, key=lambda standing: standing.watched_s, default=None)
        self._judging = Judging(make_judge, newest)
        return self._judging

    def _gather(self, judging: Judging, orders: Orders, own: OwnNode, node: str) -> None:
        gathering = judging.gathering
        if own.ranks:
            gathering.add(self._fresh)
        gathering.hear(node, own.ranks, own.findings)
        if not orders.store_up:
            gathering.hear_others({}, node, own.attempt)
        elif orders.nodes is not None:
            gathering.hear_others(orders.nodes, node, own.attempt)
        gathering.look(read_roles(orders.plan, own.attempt))

    def _stand_down(self, orders: Orders, nodes: Mapping[str, NodeReport]) -> None:
        """What was judged here is told until the leader tells its own, so that it can go on from
        there."""
        self._judging, self._leads = None, False
        leader = nodes.get(orders.lease.candidate.rpartition("/")[0])
        if leader is not None and leader.slow is not None:
            self.standing = None
