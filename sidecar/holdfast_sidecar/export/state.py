"""Everything one tick saw, judged and cost, for metrics: plain data, replaced whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from holdfast_sidecar.checkpoint.replication.fetch import PeerCounts
from holdfast_sidecar.components.gpu.history import GpuSummary
from holdfast_sidecar.components.health_check.checks import Fitness
from holdfast_sidecar.components.machine import MachineReading
from holdfast_sidecar.config.settings import CheckpointSettings, CostSettings, PolicySettings
from holdfast_sidecar.ranks.observation import Ranks
from holdfast_sidecar.records.checkpoint import SnapshotReport
from holdfast_sidecar.records.findings import Finding, Kind, Moment
from holdfast_sidecar.records.reports import ProbeHealth
from holdfast_sidecar.store.orders import Orders


@dataclass(frozen=True)
class LoopCounters:
    """The loop's own counters since it started; they don't need Redis."""

    ticks: int = 0
    tick_s: float = 0.0
    """Sum of what the ticks took."""
    failed_ticks: int = 0
    found: Mapping[Kind, int] = field(default_factory=dict)

    def after_tick(self, took_s: float) -> LoopCounters:
        """One more tick."""
        return dataclasses.replace(self, ticks=self.ticks + 1, tick_s=self.tick_s + took_s)

    def after_failure(self) -> LoopCounters:
        """One more tick that failed."""
        return dataclasses.replace(self, failed_ticks=self.failed_ticks + 1)

    def after_finding(self, kind: Kind) -> LoopCounters:
        """One more finding of this kind."""
        found = {**self.found, kind: self.found.get(kind, 0) + 1}
        return dataclasses.replace(self, found=found)


@dataclass(frozen=True)
class TickState:
    """The node at one tick."""

    moment: Moment
    ranks: Ranks
    findings: tuple[Finding, ...]
    orders: Orders
    machine: MachineReading
    probes: tuple[ProbeHealth, ...]
    launcher_alive: bool
    cost: LoopCounters
    launcher_pid: int = 0
    """0 when no launcher is watched."""
    is_told_to_end: bool = False
    """The launcher leaves since somebody told it to: a person, or a scheduler."""
    mode: str = "act"
    started_unix_s: float = 0.0
    actions_done: Mapping[str, int] = field(default_factory=dict)
    actions_failed: Mapping[str, int] = field(default_factory=dict)
    checkpoint_settings: CheckpointSettings = field(default_factory=CheckpointSettings)
    policy: PolicySettings = field(default_factory=PolicySettings)
    price: CostSettings = field(default_factory=CostSettings)
    snapshot: SnapshotReport | None = None
    heartbeats: Mapping[str, float] = field(default_factory=dict)
    """Node -> when its heartbeat was last seen to move, Unix time on this node's clock."""
    fitness: Fitness = field(default_factory=lambda: Fitness(is_known=False))
    """What the health gate's checks came to."""
    peers: PeerCounts = field(default_factory=PeerCounts)
    """Copies of snapshots on other nodes: what was sent and received."""
    gpus: GpuSummary = field(default_factory=GpuSummary)
    """Whose GPUs they are, and what they spend."""
