"""A picture as samples: everything that the page tells, in one place to read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from holdfast_sidecar.components.gpu.ownership import GpuOwnership
from holdfast_sidecar.components.health_check.component import draw_gate
from holdfast_sidecar.components.host.metrics import draw_host
from holdfast_sidecar.components.machine import MachineReading
from holdfast_sidecar.components.network.metrics import (
    draw_fabric,
    draw_kernel_events,
    draw_network,
    draw_pci,
    draw_round_trips,
    draw_tcp,
)
from holdfast_sidecar.components.network.readings import TcpReading
from holdfast_sidecar.components.xid.checks import draw_xids
from holdfast_sidecar.export.catalogue import CATALOGUE
from holdfast_sidecar.export.metrics import (
    draw_job,
    draw_lag,
    draw_ranks,
    draw_rhythm,
    draw_snapshots,
    draw_transfers,
)
from holdfast_sidecar.export.sidecar_metrics import draw_gpus, draw_nvml, draw_sidecar
from holdfast_sidecar.export.state import TickState
from holdfast_sidecar.records.metric import Labels, MetricSpec, Sample
from holdfast_sidecar.store.orders import Orders

# Samples as a page: in Prometheus' text format, or in OpenMetrics for who asks for it.

OF_THE_TARGET = ("instance", "node")
"""What the scrape of a sidecar is known by, and who tells about the whole job must not be: whoever
leads tells the same series. An empty label is no label; with `honor_labels: true` it also keeps
Prometheus from attaching that of the target."""


def expose(samples: Iterable[Sample], accept: str = "") -> tuple[bytes, str]:
    """The page for this Accept header, and what it is."""
    encode, content_type = choose_encoder(accept)
    return encode(_Page(samples)), content_type


class _Page(Collector):
    """Groups samples into families in the catalogue's order; an unknown name is a KeyError."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._by_name: dict[str, list[Sample]] = {entry.name: [] for entry in CATALOGUE}
        for sample in samples:
            self._by_name[sample.name].append(sample)

    def collect(self) -> Iterator[Metric]:
        """Every family of the catalogue that has samples."""
        for entry in CATALOGUE:
            if self._by_name[entry.name]:
                yield family(entry, self._by_name[entry.name])


def family(entry: MetricSpec, samples: Iterable[Sample]) -> Metric:
    """Samples of one entry as prometheus_client's family. Labels must be the catalogue's."""
    names = told_labels(entry)
    made = _empty(entry, names)
    for sample in samples:
        values = [*(sample.labels[label] for label in entry.labels)]
        values += [""] * (len(names) - len(values))
        if isinstance(made, SummaryMetricFamily):
            made.add_metric(values, sample.count or 0, sample.value)
        else:
            made.add_metric(values, sample.value)
    return made


def told_labels(entry: MetricSpec) -> tuple[str, ...]:
    """The entry's labels, then those that are told empty."""
    if not entry.leader_only:
        return entry.labels
    return (*entry.labels, *(label for label in OF_THE_TARGET if label not in entry.labels))


def _empty(
    entry: MetricSpec, labels: tuple[str, ...]
) -> SummaryMetricFamily | CounterMetricFamily | GaugeMetricFamily:
    # prometheus_client would append a unit to a name that does not end with it.
    base = entry.name.removesuffix("_total")
    unit = entry.unit if entry.unit and base.endswith(f"_{entry.unit}") else ""
    if entry.kind == "summary":
        return SummaryMetricFamily(entry.name, entry.help, labels=labels, unit=unit)
    if entry.kind == "counter":
        return CounterMetricFamily(entry.name, entry.help, labels=labels, unit=unit)
    return GaugeMetricFamily(entry.name, entry.help, labels=labels, unit=unit)


# What is told about the machine: host, network, fabric; GPUs apart.


def draw_machine(machine: MachineReading, told: Labels) -> Iterator[Sample]:
    """Whatever was read; a probe that fails leaves its part out."""
    if machine.host is not None:
        yield from draw_host(machine.host, told)
    if machine.network is not None:
        yield from draw_network(machine.network, told)
    if machine.fabric is not None:
        yield from draw_fabric(machine.fabric, told)
    if machine.pci is not None:
        yield from draw_pci(machine.pci, told)
    if machine.tcp is not None:
        yield from draw_tcp(machine.tcp, told)
    if machine.round_trips is not None:
        yield from draw_round_trips(machine.round_trips, told)
    if machine.kernel_events is not None:
        yield from draw_kernel_events(machine.kernel_events, told)
    yield from draw_xids(machine.xids, machine.gpu, told)


def draw(picture: TickState, job: str) -> list[Sample]:
    """All samples of this node, and those of the whole job while it leads."""
    picture = without_former_ranks(picture)
    of_job = Labels({"run": job})
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


def while_leading(picture: TickState, newest: Orders, now_s: float) -> TickState:
    """The picture as it may be told at `now_s` (monotonic), by the orders that came since: without
    leading, where another node may lead by now. Neither a loop that hangs nor a store that does may
    have two sidecars tell of the job."""
    orders = picture.orders
    leads = newest.is_leader and newest.lease == orders.lease and now_s < newest.leads_until_s
    if leads or not orders.is_leader:
        return picture
    return replace(picture, orders=replace(orders, is_leader=False))


def without_former_ranks(picture: TickState) -> TickState:
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
        gpus=replace(picture.gpus, ownership=GpuOwnership()),
        machine=replace(machine, tcp=tcp),
    )
