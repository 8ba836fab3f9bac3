"""A node as they are rented, well: eight GPUs, a network port for each, a host; counters that grow.

Nothing in here lets an alert fire, so that rules are timed on a fleet as it mostly is.
"""

from __future__ import annotations

from holdfast_sidecar.components.gpu.history import EnergyAccount, GpuSummary
from holdfast_sidecar.components.gpu.ownership import GpuOwnership, OwnershipSource, Tie
from holdfast_sidecar.components.gpu.readings import Gpu, GpuReading, Signal
from holdfast_sidecar.components.host.readings import (
    CgroupReading,
    Clock,
    FilesystemSpace,
    HostReading,
    MemoryErrors,
    NetworkFilesystem,
    Pressure,
    Sensor,
)
from holdfast_sidecar.components.machine import KernelEvents, MachineReading
from holdfast_sidecar.components.network.rdma import COUNTERS, HW_COUNTERS
from holdfast_sidecar.components.network.readings import (
    FabricReading,
    Interface,
    LinkStory,
    NetworkReading,
    PciDevice,
    PciReading,
    Port,
    RdmaDevice,
    TcpReading,
)
from holdfast_sidecar.components.network.round_trip_checks import RoundTrips, Trips
from holdfast_sidecar.components.xid.events import GpuEvents
from holdfast_sidecar.records.reports import Point, RankEnergy
from holdfast_sidecar.records.steps import RankPlacement

GIB = 2**30
GB_S = 1e9
GROUPS = ("default_pg/ab/1024", "mesh_dp/cd/128", "", "")
ROOMS = ("shm", "state", "checkpoint")

STEADY: dict[Signal, float] = {
    Signal.BUSY: 0.97,
    Signal.SM_ACTIVE: 0.8,
    Signal.SM_OCCUPANCY: 0.4,
    Signal.TENSOR_ACTIVE: 0.45,
    Signal.DRAM_ACTIVE: 0.5,
    Signal.FP16_ACTIVE: 0.1,
    Signal.MEMORY_SIZE: 80.0 * GIB,
    Signal.MEMORY_USED: 60.0 * GIB,
    Signal.MEMORY_RESERVED: 1.0 * GIB,
    Signal.PROCESSES: 1.0,
    Signal.SM_CLOCK: 1.98e9,
    Signal.SM_CLOCK_MOST: 1.98e9,
    Signal.MEMORY_CLOCK: 2.6e9,
    Signal.POWER: 600.0,
    Signal.POWER_LIMIT: 700.0,
    Signal.TEMPERATURE: 60.0,
    Signal.MEMORY_TEMPERATURE: 70.0,
    Signal.TEMPERATURE_MARGIN: 27.0,
    Signal.BANKS_ALL_LEFT: 2560.0,
    Signal.PCIE_WIDTH: 16.0,
    Signal.PCIE_WIDTH_MOST: 16.0,
    Signal.PCIE_GENERATION: 5.0,
    Signal.PCIE_GENERATION_MOST: 5.0,
    Signal.NVLINKS_ACTIVE: 18.0,
    Signal.NVLINKS_EXPECTED: 18.0,
    Signal.NVLINK_SPEED: 26.5e9,
    Signal.FABRIC_STATE: 3.0,
}
"""What else there is to tell is 0."""

GROWING: dict[Signal, float] = {
    Signal.ENERGY: 600.0,
    Signal.PCIE_RECEIVED: 1e9,
    Signal.PCIE_SENT: 1e9,
    Signal.NVLINK_RECEIVED: 1e10,
    Signal.NVLINK_SENT: 1e10,
}
"""By so much each second."""

MOVING = ("port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets")


def machine_of(ranks: range, peer: str, now_s: float) -> MachineReading:
    """All that is read of a node with a GPU and a port for each rank. peer: another node."""
    return MachineReading(
        host=_host(now_s),
        network=_network(now_s),
        gpu=GpuReading(
            True,
            "570.1",
            tuple(_gpu(number, now_s) for number in range(len(ranks))),
            len(ranks),
            read_at_s=now_s,
            took_s=0.003,
        ),
        fabric=_fabric(len(ranks), now_s),
        pci=PciReading({_pci(n): PciDevice(_pci(n), "nic", {}) for n in range(len(ranks))}),
        tcp=TcpReading(dict.fromkeys(ranks, 3), 40),
        kernel_events=KernelEvents(),
        round_trips=RoundTrips(({peer: Trips(6, 0, 0.0001)},), frozenset({peer})),
        gpu_events=GpuEvents(counts={"single_bit_ecc_storm": 0}, listening_to=len(ranks)),
        layouts={rank: RankPlacement(groups=GROUPS) for rank in ranks},
    )


def gpus_of(ranks: range, step: int, now_s: float) -> GpuSummary:
    """Whose GPUs they are, and what they spend."""
    ties = {
        rank: Tie(rank, local, 1000 + rank, 77, (_uuid(local),), OwnershipSource.TORCH)
        for local, rank in enumerate(ranks)
    }
    points = (
        Point(now_s - 8.0, 600.0 * (now_s - 8.0), step - 16, 1000 * (step - 16)),
        Point(now_s, 600.0 * now_s, step, 1000 * step),
    )
    spent = {
        rank: RankEnergy(1000 + rank, 77, 600.0 * now_s, 600.0, points=points) for rank in ranks
    }
    return GpuSummary(GpuOwnership(ties), EnergyAccount(spent))


def _gpu(number: int, now_s: float) -> Gpu:
    grown = {signal: rate * now_s for signal, rate in GROWING.items()}
    values = {**dict.fromkeys(Signal, 0.0), **STEADY, **grown}
    return Gpu(number, _uuid(number), "Twin 9000", f"0000:0{number}:00.0", values=values)


def _uuid(number: int) -> str:
    return f"GPU-{number}"


def _pci(number: int) -> str:
    return f"0000:1{number}:00.0"


def _fabric(count: int, now_s: float) -> FabricReading:
    ports = [_port(number, now_s) for number in range(count)]
    return FabricReading(
        {port.name: port for port in ports},
        {port.name: LinkStory(port.name, was_up=True) for port in ports},
    )


def _port(number: int, now_s: float) -> Port:
    device = RdmaDevice(f"mlx5_{number}", "mlx5_core", "MT_0000000838", "28.39.1002", _pci(number))
    counters = dict.fromkeys((*COUNTERS, *HW_COUNTERS), 0)
    counters |= {name: int(GB_S * now_s) for name in MOVING}
    return Port(device, 1, "InfiniBand", 4, 5, 50 * GB_S, counters)


def _network(now_s: float) -> NetworkReading:
    counters = {"rx_bytes": int(1e6 * now_s), "tx_bytes": int(1e6 * now_s)}
    counters |= dict.fromkeys(("rx_errors", "tx_errors", "rx_dropped", "tx_dropped"), 0)
    eth0 = Interface(
        "eth0",
        True,
        0,
        1.25e9,
        True,
        counters,
        carrier_changes=1,
        operational_state="up",
        mtu_bytes=9000,
        driver="mlx5_core",
        pci="0000:05:00.0",
    )
    return NetworkReading({"eth0": eth0}, {"eth0": LinkStory("eth0", was_up=True)})


def _host(now_s: float) -> HostReading:
    return HostReading(
        cpu_s={"user": 20.0 * now_s, "system": now_s, "idle": 40.0 * now_s},
        cpus=64,
        load_1m=20.0,
        memory_size_bytes=1024 * GIB,
        memory_available_bytes=600 * GIB,
        swap_used_bytes=0,
        boot_unix_s=5.0,
        pressure={name: Pressure(0.0, 0.0, 0.0, 0.0) for name in ("memory", "io", "cpu")},
        rooms={name: FilesystemSpace(500 * GIB, 400 * GIB, 10**6, 9 * 10**5) for name in ROOMS},
        oom_kills=0,
        group=CgroupReading(800 * GIB, 300 * GIB, 64.0, 100, 0, 0.0, 0.0),
        hung_tasks=0,
        foreign_cores=0.25,
        clock=Clock(True, 0.0001, 0.002),
        memory_errors=MemoryErrors(0, 0),
        sensors=(Sensor("coretemp", 60.0, 100.0),),
        energy_j={"package-0": 300.0 * now_s, "package-1": 300.0 * now_s},
        storage=(NetworkFilesystem("checkpoint", "nfs4", "/data", 0.0, 0),),
    )
