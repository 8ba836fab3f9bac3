"""All nodes of a made-up job, moment by moment, as their sidecars would show them."""

from __future__ import annotations

from dataclasses import dataclass, field

from bench.oncall.made_job import ATTEMPT, EPOCH, MadeJob, plan_of, reports, view_of
from bench.oncall.made_machine import gpus_of, machine_of
from bench.oncall.made_ranks import SLOT_BYTES, follow_ranks
from holdfast_sidecar.checkpoint.replication.fetch import PeerCounts
from holdfast_sidecar.components.health_check.checks import Fitness
from holdfast_sidecar.config.settings import CheckpointSettings, CostSettings
from holdfast_sidecar.export.state import LoopCounters, TickState
from holdfast_sidecar.ranks.observation import RankHistory, Ranks
from holdfast_sidecar.records.checkpoint import SnapshotOrder, SnapshotReport
from holdfast_sidecar.records.findings import Moment
from holdfast_sidecar.records.reports import ProbeHealth
from holdfast_sidecar.store.orders import Orders

TICKS_A_SECOND = 2
PROBES = ("host", "network", "gpu", "fabric", "pci", "tcp", "kernel")


@dataclass
class MadeFleet:
    """Remembers each rank's history, so that what counts goes up."""

    job: MadeJob
    _seen: dict[str, dict[int, RankHistory]] = field(default_factory=dict)

    def leader(self, now_s: float, now_unix_s: float) -> TickState:
        """Its node alone, with all that it knows of the others."""
        orders = self._orders(now_unix_s)
        return self._picture(self.job.nodes[0], orders, now_s, now_unix_s)

    def pictures(self, now_s: float, now_unix_s: float) -> dict[str, TickState]:
        """Every node's."""
        orders = self._orders(now_unix_s)
        return {node: self._picture(node, orders, now_s, now_unix_s) for node in self.job.nodes}

    def _orders(self, now_unix_s: float) -> Orders:
        """As the leader has them."""
        told = reports(self.job, now_unix_s)
        return Orders(
            plan=plan_of(self.job),
            snapshot=SnapshotOrder(ATTEMPT, EPOCH, every_steps=2),
            is_leader=True,
            lease=self.job.lease,
            store_up=True,
            view=view_of(self.job, told, now_unix_s),
            nodes=told,
        )

    def _picture(self, node: str, orders: Orders, now_s: float, now_unix_s: float) -> TickState:
        job, ranks = self.job, self.job.ranks_of(node)
        seen = follow_ranks(self._seen.get(node, {}), job, node, now_s, now_unix_s)
        self._seen[node] = seen
        step = job.step(now_unix_s)
        return TickState(
            moment=Moment(now_s, now_unix_s, node, now_s - 3600.0),
            ranks=Ranks(attempt=ATTEMPT, local=seen),
            findings=(),
            orders=orders if node == job.nodes[0] else _follower(orders),
            machine=machine_of(ranks, job.nodes[-1], now_s),
            probes=tuple(ProbeHealth(name, True, 0, 0.002) for name in PROBES),
            launcher_alive=True,
            cost=LoopCounters(ticks=TICKS_A_SECOND * step, tick_s=0.002 * step),
            launcher_pid=77,
            started_unix_s=job.began_unix_s,
            checkpoint_settings=CheckpointSettings(dir="/c"),
            price=CostSettings(per_gpu_hour=2.5, currency="EUR"),
            snapshot=_snapshots(step, now_s),
            heartbeats=dict.fromkeys(job.nodes, now_unix_s),
            fitness=Fitness(gpus=len(ranks), gpus_all=len(ranks)),
            peers=PeerCounts(SLOT_BYTES * step, SLOT_BYTES * step, 0.1 * step, step),
            gpus=gpus_of(ranks, step, now_s),
        )


def _follower(orders: Orders) -> Orders:
    """Another node's: only who leads reads everything."""
    return Orders(
        plan=orders.plan,
        snapshot=orders.snapshot,
        lease=orders.lease,
        store_up=True,
        nodes=orders.nodes,
    )


def _snapshots(step: int, now_s: float) -> SnapshotReport:
    return SnapshotReport(
        ATTEMPT,
        3,
        True,
        slot_bytes=SLOT_BYTES,
        newest=step,
        newest_sealed_s=now_s - 0.5,
        taken=step // 2,
    )
