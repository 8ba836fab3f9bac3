"""Puts one node's sidecar together from its parts."""

from __future__ import annotations

import gc
import logging
import os
import secrets
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast_sidecar.actions import Actions
from holdfast_sidecar.checkpoint.node_part import NodePart
from holdfast_sidecar.checkpoint.replication.component import NodePeers
from holdfast_sidecar.checkpoint.snapshot.slots import Allocation, NodeSlots, RoomReader
from holdfast_sidecar.checkpoint.writer.client import LeaderStorage, StorageClient, WriterProcess
from holdfast_sidecar.checkpoint.writer.requests import WriterSetup
from holdfast_sidecar.components import machine
from holdfast_sidecar.components.gpu.component import GpuUsersReader, GpuWatch
from holdfast_sidecar.components.gpu.nvml.probe import open_event_probe, open_gpu_probe
from holdfast_sidecar.components.hardware import HardwareAttention
from holdfast_sidecar.components.host import cpu
from holdfast_sidecar.components.host.cpu import ThrottlingProbe
from holdfast_sidecar.components.host.host import HostProbe
from holdfast_sidecar.components.network import pcie, tcp
from holdfast_sidecar.components.network.ethernet import NetworkProbe
from holdfast_sidecar.components.network.pcie import PciProbe
from holdfast_sidecar.components.network.rdma import FabricProbe, Selection
from holdfast_sidecar.components.network.round_trip import NodeRoundTrip, RoundTrip
from holdfast_sidecar.components.network.tcp import TcpProbe
from holdfast_sidecar.components.xid.component import XidAttention
from holdfast_sidecar.config.addresses import is_loopback, parse_listen, told_address
from holdfast_sidecar.config.paths import Paths
from holdfast_sidecar.config.redaction import own_secrets
from holdfast_sidecar.config.settings import BadInput, Settings
from holdfast_sidecar.controller.coordinator import Coordinator, NodeIdentity, RoundTripLiveness
from holdfast_sidecar.controller.fence import FenceFile
from holdfast_sidecar.controller.leader import Leadership
from holdfast_sidecar.export.access import open_protection
from holdfast_sidecar.export.http_server import Server
from holdfast_sidecar.export.job_record import read_requeues
from holdfast_sidecar.export.live.context import PATIENCE_S
from holdfast_sidecar.export.live.routes import LivePage, LiveTelling
from holdfast_sidecar.export.routes import (
    DiscoveryRoute,
    Exporter,
    HealthRoute,
    LastWords,
    MetricsRoute,
    TargetFile,
    Targets,
)
from holdfast_sidecar.incidents.collect import EvidenceKeeping
from holdfast_sidecar.incidents.storage import IncidentStore
from holdfast_sidecar.lifecycle import Shutdown, ShutdownBlockers, watch_launcher
from holdfast_sidecar.linux import cgroups
from holdfast_sidecar.linux.files import KernelTrees, read_boot
from holdfast_sidecar.linux.kmsg import KernelLog
from holdfast_sidecar.linux.probe_runner import Patient, ProbeRunner
from holdfast_sidecar.loop import Coordination, Loop, Teller
from holdfast_sidecar.performance import slowness
from holdfast_sidecar.performance.slowness import LayoutsProbe, SlownessAttention
from holdfast_sidecar.performance.stragglers.efficiency import EfficiencyWatch
from holdfast_sidecar.performance.stragglers.judge import Judge
from holdfast_sidecar.ranks.death_watch import DeathWatch
from holdfast_sidecar.ranks.ending import ActionRunner
from holdfast_sidecar.ranks.flight_recorder import FlightRecorderClient
from holdfast_sidecar.ranks.observation import RankTracker
from holdfast_sidecar.ranks.page import Pages, RankPage
from holdfast_sidecar.ranks.probe import RanksProbe
from holdfast_sidecar.startup import Site
from holdfast_sidecar.store.protocol import Store

logger = logging.getLogger(__name__)


def open_round_trip(site: Site) -> NodeRoundTrip:
    """This node's part in round trips."""
    return NodeRoundTrip(site.node, site.settings.snapshot.peer_listen)


def coordinate(
    site: Site,
    store: Store,
    desk: StorageClient,
    predecessor: str,
    round_trips: RoundTripLiveness | None = None,
) -> Coordinator:
    """The thread that agrees with the other nodes. predecessor: see NodeIdentity."""
    storage = LeaderStorage(site.settings.checkpoint, desk)
    identity = NodeIdentity(
        site.node,
        secrets.token_hex(4),
        os.getpid(),
        boot=read_boot(),
        job=site.job,
        host=socket.gethostname(),
        predecessor=predecessor,
    )
    leadership = Leadership(
        store,
        site.settings,
        storage,
        recall=IncidentStore(site.places, site.settings.evidence).recall,
        recall_requeues=lambda: read_requeues(site.places.state.parent),
    )
    fence = FenceFile(site.places.fence, site.places.local_fence)
    coordinator = Coordinator(
        store, identity, site.settings, leadership, fence, round_trips=round_trips
    )
    desk.wake = coordinator.look
    return coordinator


def assemble(
    site: Site,
    coordination: Coordination,
    desk: StorageClient,
    teller: Teller,
    metrics_address: str,
    echo: RoundTrip | None = None,
) -> Loop:
    """The loop, ready to run. echo: the one that coordination asks by."""
    pages = Pages(site.places.shm)
    trees = KernelTrees(site.settings.paths.machine_root)
    host = HostProbe(rooms(site), trees, site.settings.host, lambda: pids_of(pages.held()))
    runner = ActionRunner()
    evidence = EvidenceKeeping(
        site.places,
        runner,
        settings=site.settings.evidence,
        secrets=own_secrets(site.settings, os.environ),
    )
    return Loop(
        node=site.node,
        settings=site.settings,
        ranks_probe=ProbeRunner(
            RanksProbe(
                pages,
                oom=cgroups.OomWatch(log=cgroups.KernelLogReader(trees.kernel_log)),
                clean=evidence.clean,
            ),
            every_s=0.0,
        ),
        machine=machine.MachineProbes(
            host=ProbeRunner(host, site.settings.host.every_s),
            network=ProbeRunner(Patient(watch_network(trees)), machine.EVERY_S),
            gpu=ProbeRunner(open_gpu_probe(site.settings.gpu), every_s=0.0),
            gpu_events=ProbeRunner(
                open_event_probe(site.settings.gpu, coordination.changed.set), every_s=0.0
            ),
            fabric=ProbeRunner(
                Patient(
                    FabricProbe(trees.sys / "class/infiniband", Selection.of(site.settings.fabric))
                ),
                machine.LINKS_EVERY_S,
            ),
            pci=ProbeRunner(Patient(PciProbe(trees.sys / "bus/pci/devices")), pcie.EVERY_S),
            tcp=ProbeRunner(TcpProbe(lambda: pids_of(pages.held())), tcp.EVERY_S),
            throttling=ProbeRunner(ThrottlingProbe(lambda: pids_of(pages.held())), cpu.EVERY_S),
            layouts=ProbeRunner(LayoutsProbe(pages.held), slowness.LAYOUTS_EVERY_S),
            host_parts=host.health,
            kernel=ProbeRunner(KernelLog(coordination.changed.set, trees.kernel_log), every_s=0.0),
        ),
        coordination=coordination,
        deeds=Actions(
            site.node,
            site.settings,
            site.places,
            pages,
            IncidentStore(site.places, site.settings.evidence),
            evidence,
            runner,
            releases_ranks=not site.launcher_pid,
        ),
        saved_parts=NodePart(site.node, str(site.places.shm), desk),
        snapshots=NodeSlots(
            site.settings.snapshot,
            pages,
            runner,
            Allocation(site.places.shm, room_reader(site), site.memory),
        ),
        peers=NodePeers(
            node=site.node,
            job=site.job,
            shm=site.places.shm,
            settings=site.settings.snapshot,
            pages=pages,
            runner=runner,
            wake=coordination.changed.set,
            memory=site.memory,
        ),
        farewell=Shutdown(
            watch_launcher(site.launcher_pid), site.places, site.settings.sidecar.grace_s, runner
        ),
        teller=teller,
        parting=ShutdownBlockers(
            site.node,
            str(site.places.shm),
            site.settings,
            desk,
            site.places.shipping,
            summons=site.places.told_to_end if site.launcher_pid else None,
        ),
        metrics_address=metrics_address,
        echo=open_round_trip(site) if echo is None else echo,
        death_watch=DeathWatch(pages, coordination.changed.set),
        is_attached=site.attached,
        inquiry=FlightRecorderClient(pages.held, coordination.changed.set),
        hardware=HardwareAttention(
            GpuWatch(GpuUsersReader(pages.held, own_pids(site))),
            XidAttention(site.places.xid_history),
        ),
        slowness=SlownessAttention(site.settings.straggler, judge_all),
        attention=RankTracker(numbers=site.settings.numbers),
    )


def judge_all() -> Judge:
    """Who is slow, and how well the machine is used."""
    return Judge(EfficiencyWatch())


def own_pids(site: Site) -> frozenset[int]:
    """Processes whose children are this job's, whether or not they are ranks."""
    return frozenset(pid for pid in (os.getpid(), site.launcher_pid) if pid)


def open_storage_client(site: Site) -> StorageClient:
    """Where this sidecar asks about storage; a child of its own answers, once it is asked."""
    settings = site.settings.checkpoint
    desk = StorageClient(settings.write_timeout_s)
    desk.messenger = WriterProcess(WriterSetup(site.job, settings, os.getpid()), desk.deliver)
    return desk


def room_reader(site: Site) -> RoomReader:
    """Says how much memory snapshots may take."""
    paths = site.settings.paths
    return RoomReader(Path(paths.shm_dir), paths.shm_reserve_bytes, memory=site.memory)


def pids_of(held: Iterable[RankPage]) -> dict[int, int]:
    """Of the ranks that live here, by rank."""
    return {one.identity.rank: one.identity.pid for one in held if one.pidfd is not None}


def watch_network(trees: KernelTrees) -> NetworkProbe:
    """Interfaces. Drivers are asked by name, in our own network: elsewhere the same name may mean
    another interface, so that under another root they are not asked at all."""
    root = trees.sys / "class/net"
    return NetworkProbe(root) if trees.root == "/" else NetworkProbe(root, lambda name: {})


def rooms(site: Site) -> Mapping[str, Path]:
    """The file systems whose room matters, by purpose."""
    watched = {"shm": Path(site.settings.paths.shm_dir), "state": site.places.state}
    where = site.settings.checkpoint.dir
    if where and "://" not in where:
        watched["checkpoint"] = Path(where)
    return watched


# What one node's sidecar serves, put together: its routes, who may ask, and where it is found.


@dataclass(frozen=True)
class Served:
    """A server that listens, and the address by which the others find it; empty: neither."""

    exporter: Exporter
    address: str
    last_words: LastWords
    unserved: str = ""
    """Why there is no server, and how to mend it; empty: there is one."""


def open_exporter(
    job: str, node: str, settings: Settings, places: Paths, is_needed: bool = True
) -> Served:
    """Begin to serve; before the first tick there is little to tell. Raises BadInput where that is
    needed; else the log says so, and the job is watched without."""
    server, unserved = _open_server(settings, is_needed)
    address = ""
    if server is not None:
        address = told_address(settings.sidecar, server.port, settings.redis.url)
    discovery = _discovery(job, node, address, TargetFile(places.targets))
    live = LiveTelling(job, max(PATIENCE_S, 2 * settings.sidecar.node_timeout_s))
    last_words = LastWords()
    metrics = MetricsRoute(job, last_words=last_words)
    exporter = Exporter(
        routes=(LivePage(), live, metrics, HealthRoute(), discovery),
        listeners=(discovery, live),
        server=server,
    )
    exporter.serve()
    if address:
        _say(settings, address)
    return Served(exporter, address, last_words, unserved)


def _open_server(settings: Settings, is_needed: bool) -> tuple[Server | None, str]:
    """The server, or why there is none."""
    try:
        return Server(settings.sidecar.listen, open_protection(settings.sidecar)), ""
    except BadInput as error:
        if is_needed:
            raise
        logger.error("no metrics and no page here, the job is watched all the same: %s", error)
        return None, str(error)


def _discovery(job: str, node: str, address: str, file: TargetFile) -> DiscoveryRoute:
    left = file.read(time.time())
    targets = Targets(node, address, left, is_known=bool(left), boot=read_boot())
    return DiscoveryRoute(job, targets, file)


def _say(settings: Settings, address: str) -> None:
    host, _ = parse_listen(settings.sidecar.listen)
    if is_loopback(host):
        logger.info(
            "metrics at %s, for this machine alone: with --listen HOST:PORT others reach them",
            address,
        )
    else:
        logger.info("metrics at %s, listening on %s", address, settings.sidecar.listen)


# How seldom Python's garbage collector looks through a sidecar: it is there for cycles, of which
# hardly any are made; all else goes as soon as nothing holds it.

YOUNG = 20_000
"""Objects that came and stayed since the last look (Python's own: 700). What 4,096 ranks tell in a
second, and what is kept of their groups, are ten thousand, gone a second later: by Python's own
number the leader would look through them twenty times a second, through all it has every few, and
find nothing, for a fifth of what judging costs. In cycles so many objects hold a few megabytes."""


def collect_seldom() -> None:
    """Of this process, from now on."""
    _, older, oldest = gc.get_threshold()
    gc.set_threshold(YOUNG, older, oldest)
