"""A picture as samples: everything that the page tells, in one place to read."""

from __future__ import annotations

from dataclasses import replace

from holdfast_sidecar.components.gpu.ownership import Ownership
from holdfast_sidecar.components.health_check.component import draw_gate
from holdfast_sidecar.components.network.readings import TcpReading
from holdfast_sidecar.metrics.gpu_samples import draw_gpus
from holdfast_sidecar.metrics.job_samples import draw_job
from holdfast_sidecar.metrics.machine_samples import draw_machine
from holdfast_sidecar.metrics.nvml_samples import draw_nvml
from holdfast_sidecar.metrics.peer_samples import draw_lag, draw_transfers
from holdfast_sidecar.metrics.rank_samples import draw_ranks
from holdfast_sidecar.metrics.sidecar_samples import draw_sidecar
from holdfast_sidecar.metrics.snapshot_samples import draw_rhythm, draw_snapshots
from holdfast_sidecar.picture import Picture
from holdfast_sidecar.records.metric import Sample, Told
from holdfast_sidecar.store.orders import Orders


def draw(picture: Picture, job: str) -> list[Sample]:
    """All samples of this node, and those of the whole job while it leads."""
    picture = without_former_ranks(picture)
    of_job = Told({"run": job})
    of_node = of_job.about(node=picture.moment.node)
    samples = [
        *draw_sidecar(picture, of_node),
        *draw_ranks(picture, of_node),
        *draw_snapshots(picture, of_node),
        *draw_gate(picture.fitness, of_node),
        *draw_machine(picture.machine, of_node),
        *draw_nvml(picture.machine, picture.moment, of_node),
        *draw_gpus(picture, of_node),
        *draw_transfers(picture.peers, of_node),
    ]
    if picture.orders.is_leader:
        samples += [
            *draw_job(picture, of_job),
            *draw_rhythm(picture, of_job),
            *draw_lag(picture, of_job),
        ]
    return samples


def while_leading(picture: Picture, newest: Orders, now_s: float) -> Picture:
    """The picture as it may be told at `now_s` (monotonic), by the orders that came since: without
    leading, where another node may lead by now. Neither a loop that hangs nor a store that does may
    have two sidecars tell of the job."""
    orders = picture.orders
    leads = newest.is_leader and newest.lease == orders.lease and now_s < newest.leads_until_s
    if leads or not orders.is_leader:
        return picture
    return replace(picture, orders=replace(orders, is_leader=False))


def without_former_ranks(picture: Picture) -> Picture:
    """The picture without ranks of an attempt that a later one has followed.

    Their numbers have ranks elsewhere then, or new ones here soon: told on, they would be dead for
    as long as the job runs without this node. Those that died in the job's newest attempt are told.
    """
    plan, ranks = picture.orders.plan, picture.ranks
    if plan is None or plan.attempt <= ranks.attempt:
        return picture
    machine = picture.machine
    tcp = machine.tcp and TcpReading({}, machine.tcp.of_host)
    return replace(
        picture,
        ranks=replace(ranks, local={}),
        gpus=replace(picture.gpus, ownership=Ownership()),
        machine=replace(machine, tcp=tcp),
    )
