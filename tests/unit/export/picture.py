"""A picture in which everything is known, so that every metric has something to tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tests.unit.ranks import scene
from tests.unit.ranks.scene import history, look, moment, steps
from tests.unit.records import slow_job

from holdfast.contract.page import Phase, Reply, ReplyState, Word, float_bits
from holdfast_sidecar.checkpoint.replication.fetch import PeerCounts
from holdfast_sidecar.components.gpu.history import EnergyAccount, GpuSummary
from holdfast_sidecar.components.gpu.ownership import GpuOwnership, OwnershipSource, Tie
from holdfast_sidecar.components.gpu.readings import Gpu, GpuReading, NvmlSilence, Signal
from holdfast_sidecar.components.health_check.checks import Fitness, UnfitReason
from holdfast_sidecar.components.host.readings import (
    CgroupReading,
    Clock,
    FilesystemSpace,
    HostReading,
    MemoryErrors,
    NetworkFilesystem,
    Pressure,
    Sensor,
    Stuck,
)
from holdfast_sidecar.components.machine import KernelEvents, MachineReading
from holdfast_sidecar.components.network.rdma import COUNTERS, EFA_COUNTERS, HW_COUNTERS
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
from holdfast_sidecar.components.xid.checks import Known, XidCounts, XidReading
from holdfast_sidecar.components.xid.events import GpuEvents
from holdfast_sidecar.config.settings import CheckpointSettings, CostSettings
from holdfast_sidecar.export.state import LoopCounters, TickState
from holdfast_sidecar.ranks.observation import RankHistory, RankLook, Ranks
from holdfast_sidecar.records.checkpoint import (
    CheckpointOrder,
    CheckpointTally,
    LedgerEntry,
    PeerOrder,
    SnapshotOrder,
    SnapshotReport,
)
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.findings import Finding, Kind, Remedy
from holdfast_sidecar.records.plan import Incident, Member, Plan, Quarantine
from holdfast_sidecar.records.reports import (
    AgentReport,
    NodeReport,
    Point,
    ProbeHealth,
    RankEnergy,
    RankReport,
)
from holdfast_sidecar.records.steps import RankPlacement
from holdfast_sidecar.store.orders import Orders
from holdfast_sidecar.store.protocol import Lease, Section, View

XIDS = XidReading(
    gpus={"0000:01:00.0": Known("GPU-1", 0, rank=0)},
    xids={("0000:01:00.0", 79): XidCounts(1, 2, 990.5, Remedy.REBOOT_NODE)},
    sxids={20034: XidCounts(1, 1, 980.0, Remedy.RESET_GPU)},
)

PLAN = Plan(
    attempt=3,
    epoch=4,
    state="running",
    members=[Member("a", "x", 0, 0, 1), Member("b", "y", 1, 1, 1)],
    world_size=2,
    restarts=3,
    outside=[Quarantine("m-c", "c", 900.0, 2000.0, by="ops", is_drained=True)],
)


STANDING = replace(
    slow_job.STANDING,
    attempt=3,
    slow=[replace(slow_job.SLOW, ranks=[1])],
    efficiency=replace(slow_job.EFFICIENCY, bubble_share=0.07),
)


def rank_report(rank: int, step: int) -> RankReport:
    pace = (0.1, 0.05, 0.03)
    return RankReport(rank, 0, 9, step, "forward", *pace, power_w=500.0, tokens_per_s=2000.0)


def node_report(node: str, rank: int, step: int) -> str:
    slow = STANDING if node == "a" else None
    ranks = [rank_report(rank, step)]
    return encode(NodeReport(node, "x", 1, 3, 4, 3, True, ranks=ranks, slow=slow))


def agent(node: str, state: str) -> str:
    return encode(AgentReport(node, "x", state, 3, 1, 1, "127.0.0.1", 2, 2))


INCIDENTS = {
    "i1": Incident(
        "i1",
        1,
        "hang",
        since_unix_s=100.0,
        detected_unix_s=101.0,
        recovered_unix_s=104.5,
        step_reached=50,
        step_resumed=40,
        decided="restart",
    ),
    "i2": Incident("i2", 2, "crash", since_unix_s=200.0, detected_unix_s=200.1),
    "i3": Incident(
        "i3",
        2,
        "gpu",
        "b",
        [1],
        0.95,
        detected_unix_s=150.0,
        culprit_part="m-b",
        seen_as="crash",
        remedy="reset_gpu",
    ),
}

LEDGER = {
    "c0": LedgerEntry("c0", "/c/step-30-c0", 30, 0, 1, "", "good", 900, 2, 80.0),
    "c1": LedgerEntry(
        "c1", "/c/step-40-c1", 40, 1, 2, "c0", "complete", 1000, 2, 90.0, blocked_s=2.0, write_s=9.0
    ),
    "c2": LedgerEntry("c2", "/c/step-44-c2", 44, 2, 3, "c1", "poisoned", 1000, 2, 95.0),
}

TALLY = CheckpointTally({"complete periodic": 2, "void grow": 1}, 2, 0.5, 8)
ACCOUNT = {
    "began": "50000000",
    "at": "250000000",
    "open": "pending",
    "run": "50.000000",
    "attempt": "3",
    "gpus": "2",
    "nodes": "2",
    "weight": "2",
    "pending": "1500000",
    "s:init": "20000000",
    "s:productive": "170000000",
    "s:hang_undetected": "8500000",
    "g:init": "40000000",
    "g:productive": "340000000",
    "g:hang_undetected": "17000000",
    "i:i1": "1000000 500000 1500000 300000 200000 2500000 5000000 10 hang b",
}

VIEW = View(
    Lease(4, "a/x"),
    "server",
    {
        Section.PLAN: {"current": encode(PLAN)},
        Section.AGENTS: {
            "a": agent("a", "running"),
            "b": agent("b", "running"),
            "c": agent("c", "joining"),
        },
        Section.NODES: {"a": node_report("a", 0, 45), "b": node_report("b", 1, 44)},
        Section.INCIDENTS: {name: encode(incident) for name, incident in INCIDENTS.items()},
        Section.LEDGER: {name: encode(entry) for name, entry in LEDGER.items()},
        Section.ACCOUNT: ACCOUNT,
        Section.PEER: {"current": encode(PeerOrder("p1", 3, 4, 44, "armed", 9.0, through=42))},
        Section.CHECKPOINT: {
            "current": encode(CheckpointOrder("c3", 3, 4, 60, "/c/step-60-c3", "armed", 60.0)),
            "tally": encode(TALLY),
        },
    },
)

HOST = HostReading(
    cpu_s={"user": 10.0, "idle": 90.0},
    cpus=8,
    load_1m=1.5,
    memory_size_bytes=1000,
    memory_available_bytes=600,
    swap_used_bytes=0,
    boot_unix_s=5.0,
    pressure={"memory": Pressure(2.5, 1.0, 0.1, 0.05)},
    rooms={"shm": FilesystemSpace(500, 400, 1000, 900)},
    oom_kills=0,
    group=CgroupReading(800, 300, 4.0, 100, 5, 0.5, 0.0),
    hung_tasks=0,
    stuck=(Stuck(0, 7, 1.0),),
    foreign_cores=0.25,
    clock=Clock(True, 0.001, 0.02),
    memory_errors=MemoryErrors(3, 0),
    sensors=(Sensor("coretemp", 60.0, 100.0),),
    energy_j={"package-0": 1234.5},
    storage=(NetworkFilesystem("checkpoint", "nfs4", "/data", 0.0, 2),),
)

ETH0 = Interface(
    "eth0",
    True,
    1,
    1.25e9,
    True,
    {
        "rx_bytes": 1,
        "tx_bytes": 2,
        "rx_errors": 3,
        "tx_errors": 4,
        "rx_dropped": 5,
        "tx_dropped": 6,
    },
    carrier_changes=3,
    operational_state="up",
    mtu_bytes=9000,
    driver="mlx5_core",
    pci="0000:05:00.0",
    roce_ecn="np=3 rp=3",
    frames={("pause", "receive", "3"): 7, ("discards", "receive", ""): 8},
)

MLX5 = Port(
    RdmaDevice("mlx5_0", "mlx5_core", "MT_0000000838", "28.39.1002", "0000:18:00.0"),
    1,
    "InfiniBand",
    4,
    5,
    50e9,
    {name: number for number, name in enumerate((*COUNTERS, *HW_COUNTERS))},
)
EFA = Port(
    RdmaDevice("rdmap0s6", "efa", "", "", "0000:00:06.0"),
    1,
    "Unspecified",
    4,
    counters={name: number for number, name in enumerate(EFA_COUNTERS)},
)
FABRIC = FabricReading(
    {port.name: port for port in (MLX5, EFA)},
    {"mlx5_0/1": LinkStory("mlx5_0/1", was_up=True, flaps_s=(5.0,))},
)
PCI = PciReading({"0000:18:00.0": PciDevice("0000:18:00.0", "nic", {"correctable": 2, "fatal": 0})})
NETWORK = NetworkReading({"eth0": ETH0}, {"eth0": LinkStory("eth0", was_up=True)})

GPU = Gpu(
    0,
    "GPU-1",
    "Twin 9000",
    "0000:01:00.0",
    values={signal: float(number) for number, signal in enumerate(Signal)},
)
OWNERSHIP = GpuOwnership({0: Tie(0, 0, 1000, 77, ("GPU-1",), OwnershipSource.TORCH)})
ENERGY = EnergyAccount(
    {
        0: RankEnergy(
            *(1000, 77, 5000.0, 400.0),
            points=(Point(1.0, 1000.0, 20, 2000), Point(9.0, 3000.0, 40, 6000)),
        )
    }
)


EVENTS = GpuEvents(
    counts={"single_bit_ecc_storm": 1, "recovery_action": 0},
    listening_to=1,
    silence=NvmlSilence("events", 7.5, stuck=1),
    stuck=1,
)

SNAPSHOT_WORDS = {
    Word.BUSY_CHANGED_NS: 1,
    Word.SNAPSHOTS_TAKEN: 20,
    Word.SNAPSHOTS_SKIPPED: 1,
    Word.SNAPSHOT_BLOCKED_NS: 400_000_000,
    Word.SNAPSHOT_LAST_NS: 18_000_000,
    Word.SNAPSHOT_FIRST_NS: 50_000_000,
}


NUMBER_WORDS = {
    Word.GRADIENT_BITS: float_bits(1.5),
    Word.GRADIENT_STEP: 45,
    Word.NONFINITE_GRADIENTS: 2,
    Word.SCALER_SKIPS: 1,
    Word.TOKENS: 6000,
}

MEMORY_WORDS = {
    Word.MEMORY_ALLOCATED: 4000,
    Word.MEMORY_RESERVED: 5000,
    Word.MEMORY_PEAK: 6000,
    Word.MEMORY_TOTAL: 8000,
    Word.MEMORY_RETRIES: 2,
}

GROUP_WORDS = {Word.COLLECTIVES_1: 45, Word.SENT_BYTES_1: 90_000}

WORDS = {**SNAPSHOT_WORDS, **NUMBER_WORDS, **MEMORY_WORDS, **GROUP_WORDS}


def with_words(look: RankLook, values: Mapping[Word, int]) -> RankLook:
    """A look whose page says this, too."""
    words = [values.get(word, look.words[word]) for word in Word]
    return replace(look, words=(*words, *look.words[len(words) :]))


def ranks(*histories: RankHistory) -> Ranks:
    """Of the plan's attempt."""
    return replace(scene.ranks(*histories), attempt=PLAN.attempt)


def picture(is_leader: bool = True, machine: MachineReading | None = None) -> TickState:
    """The node at one tick."""
    rank = look(
        10.0,
        Phase.BACKWARD,
        since_s=9.9,
        step=45,
        loss=0.25,
        records=steps(20, forward=30, data=5),
        reply=Reply(ReplyState.SAVED, 40, 500, 250_000_000, "c1"),
    )
    return TickState(
        moment=moment(10.0),
        ranks=ranks(history(with_words(rank, WORDS))),
        fitness=Fitness((UnfitReason("gpus", "1 of 2 are there"),), {"room": "no host"}),
        findings=(Finding(Kind.STALL, "a", 9.0, 0.6, [0], acts=True),),
        orders=Orders(
            plan=PLAN,
            snapshot=SnapshotOrder(3, 4, every_steps=2),
            is_leader=is_leader,
            lease=VIEW.lease,
            store_up=True,
            view=VIEW,
        ),
        machine=machine
        or MachineReading(
            HOST,
            NETWORK,
            GpuReading(True, "570.1", (GPU,), 8, read_at_s=9.0, took_s=0.01),
            fabric=FABRIC,
            pci=PCI,
            tcp=TcpReading({0: 3}, 40),
            kernel_events=KernelEvents(),
            round_trips=RoundTrips(({"b": Trips(6, 1, 0.0001)},), frozenset({"b"})),
            xids=XIDS,
            gpu_events=EVENTS,
            layouts={0: RankPlacement(groups=("default_pg/ab/2", "", "", ""))},
        ),
        gpus=GpuSummary(OWNERSHIP, ENERGY),
        probes=(ProbeHealth("host", True, 0, 0.002), ProbeHealth("gpu", False, 2, 1.0)),
        launcher_alive=True,
        cost=LoopCounters(ticks=20, tick_s=0.05, failed_ticks=0, found={Kind.STALL: 1}),
        launcher_pid=77,
        started_unix_s=999_000.0,
        actions_done={"keep_evidence": 1},
        actions_failed={},
        checkpoint_settings=CheckpointSettings(dir="/c"),
        price=CostSettings(per_gpu_hour=2.5, currency="EUR"),
        heartbeats={"a": 1_000_009.5, "b": 1_000_009.0},
        snapshot=SnapshotReport(
            3, 3, True, slot_bytes=3000, newest=44, newest_sealed_s=9.5, taken=20
        ),
        peers=PeerCounts(5000, 6000, 2.5, 4, 1, 2),
    )
