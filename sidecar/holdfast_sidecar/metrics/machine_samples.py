"""What is told about the machine: host, network, GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.metrics.gpu_samples import draw_gpus
from holdfast_sidecar.metrics.host_samples import draw_host
from holdfast_sidecar.metrics.network_samples import draw_network
from holdfast_sidecar.metrics.samples import Sample, Told
from holdfast_sidecar.metrics.xid_samples import draw_xids
from holdfast_sidecar.readings.machine import MachineReading


def draw_machine(machine: MachineReading, told: Told) -> Iterator[Sample]:
    """Whatever was read; a probe that fails leaves its part out."""
    if machine.host is not None:
        yield from draw_host(machine.host, told)
    if machine.network is not None:
        yield from draw_network(machine.network, told)
    if machine.gpu is not None and machine.gpu.is_present:
        yield from draw_gpus(machine.gpu, told)
    yield from draw_xids(machine.xids, told)
