"""What is told about the machine: host, network, fabric; GPUs apart."""

from __future__ import annotations

from collections.abc import Iterator

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
from holdfast_sidecar.components.xid.checks import draw_xids
from holdfast_sidecar.records.metric import Sample, Told


def draw_machine(machine: MachineReading, told: Told) -> Iterator[Sample]:
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
