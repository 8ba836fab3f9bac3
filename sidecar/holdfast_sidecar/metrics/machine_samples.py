"""What is told about the machine: host, network interfaces, GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.machine import Gpu, GpuReading, HostReading, MachineReading, NetworkReading
from holdfast_sidecar.metrics.samples import Sample, Told

NET_COUNTERS = {
    "rx_bytes": "net_receive_bytes_total",
    "tx_bytes": "net_transmit_bytes_total",
    "rx_errors": "net_receive_errors_total",
    "tx_errors": "net_transmit_errors_total",
    "rx_dropped": "net_receive_drops_total",
    "tx_dropped": "net_transmit_drops_total",
}


def draw_machine(machine: MachineReading, told: Told) -> Iterator[Sample]:
    """Whatever was read; a probe that fails leaves its part out."""
    if machine.host is not None:
        yield from _draw_host(machine.host, told)
    if machine.network is not None:
        yield from _draw_network(machine.network, told)
    if machine.gpu is not None and machine.gpu.is_present:
        yield from _draw_gpus(machine.gpu, told)


def _draw_host(host: HostReading, told: Told) -> Iterator[Sample]:
    for mode, seconds in host.cpu_s.items():
        yield from told("host_cpu_seconds_total", seconds, mode=mode)
    yield from told("host_cpus", host.cpus)
    yield from told("host_load1", host.load_1m)
    yield from told("host_memory_size_bytes", host.memory_size_bytes)
    yield from told("host_memory_available_bytes", host.memory_available_bytes)
    yield from told("host_swap_used_bytes", host.swap_used_bytes)
    yield from told("host_boot_timestamp_seconds", host.boot_unix_s)
    yield from told("host_oom_kills_total", host.oom_kills)
    for resource, pressure in host.pressure.items():
        of_resource = told.about(resource=resource)
        yield from of_resource("host_pressure_waiting_seconds_total", pressure.waiting_s)
        yield from of_resource("host_pressure_stalled_seconds_total", pressure.stalled_s)
    for purpose, room in host.rooms.items():
        yield from told("host_room_size_bytes", room.size_bytes, room=purpose)
        yield from told("host_room_available_bytes", room.available_bytes, room=purpose)


def _draw_network(network: NetworkReading, told: Told) -> Iterator[Sample]:
    for link in network.interfaces.values():
        of_link = told.about(device=link.name)
        yield from of_link("net_up", link.has_carrier)
        yield from of_link("net_speed_bytes_per_second", link.speed_bytes_per_s)
        yield from of_link("net_carrier_losses_total", link.carrier_losses)
        for counter, name in NET_COUNTERS.items():
            yield from of_link(name, link.counters.get(counter))


def _draw_gpus(reading: GpuReading, told: Told) -> Iterator[Sample]:
    yield from told("node_gpus", len(reading.gpus))
    for gpu in reading.gpus:
        yield from _draw_gpu(gpu, reading.driver, told.about(gpu=str(gpu.index)))


def _draw_gpu(gpu: Gpu, driver: str, told: Told) -> Iterator[Sample]:
    yield from told("gpu_info", 1, uuid=gpu.uuid, model=gpu.model, pci=gpu.pci, driver=driver)
    yield from told("gpu_busy_ratio", gpu.busy_ratio)
    yield from told("gpu_memory_size_bytes", gpu.memory_size_bytes)
    yield from told("gpu_memory_used_bytes", gpu.memory_used_bytes)
    yield from told("gpu_temperature_celsius", gpu.temperature_celsius)
    yield from told("gpu_power_watts", gpu.power_watts)
    yield from told("gpu_power_limit_watts", gpu.power_limit_watts)
    yield from told("gpu_sm_clock_hertz", gpu.sm_clock_hertz)
    yield from told("gpu_processes", gpu.processes)
    yield from told("gpu_ecc_errors_total", gpu.ecc_corrected, error="corrected")
    yield from told("gpu_ecc_errors_total", gpu.ecc_uncorrected, error="uncorrected")
