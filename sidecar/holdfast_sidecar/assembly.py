"""Puts one node's sidecar together from its parts."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast_sidecar.actions.runner import ActionRunner
from holdfast_sidecar.checkpoint_keeping import Storage
from holdfast_sidecar.checkpoints.directory import CheckpointDirectory
from holdfast_sidecar.checkpoints.parts import PartHashing
from holdfast_sidecar.chronicle import Chronicle
from holdfast_sidecar.coordination.store import Store
from holdfast_sidecar.coordinator import Coordinator, NodeIdentity
from holdfast_sidecar.deeds import Deeds
from holdfast_sidecar.farewell import Farewell
from holdfast_sidecar.fence import FenceFile
from holdfast_sidecar.leadership import Leadership
from holdfast_sidecar.loop import Coordination, Loop, SavedParts, Teller
from holdfast_sidecar.pages import Pages
from holdfast_sidecar.places import Places
from holdfast_sidecar.probes import machine
from holdfast_sidecar.probes.gpu import GpuProbe
from holdfast_sidecar.probes.host import HostProbe
from holdfast_sidecar.probes.launcher import watch_launcher
from holdfast_sidecar.probes.network import NetworkProbe
from holdfast_sidecar.probes.patience import Patient
from holdfast_sidecar.probes.ranks import RanksProbe
from holdfast_sidecar.probes.runner import ProbeRunner
from holdfast_sidecar.settings import Settings
from holdfast_sidecar.snapshots.node_slots import NodeSlots


@dataclass(frozen=True)
class Site:
    """Which node of which job is watched, and under which settings."""

    job: str
    node: str
    places: Places
    settings: Settings
    launcher_pid: int = 0


def coordinate(site: Site, store: Store, storage: Storage) -> Coordinator:
    """The thread that agrees with the other nodes."""
    identity = NodeIdentity(site.node, secrets.token_hex(4), os.getpid())
    leadership = Leadership(store, site.settings, storage)
    return Coordinator(store, identity, site.settings, leadership, FenceFile(site.places.fence))


def assemble(
    site: Site,
    coordination: Coordination,
    saved_parts: SavedParts,
    teller: Teller,
    metrics_address: str,
) -> Loop:
    """The loop, ready to run."""
    pages = Pages(site.places.shm)
    runner = ActionRunner()
    return Loop(
        node=site.node,
        settings=site.settings,
        ranks_probe=ProbeRunner(RanksProbe(pages), every_s=0.0),
        machine=machine.MachineProbes(
            host=ProbeRunner(Patient(HostProbe(rooms(site))), machine.EVERY_S),
            network=ProbeRunner(NetworkProbe(), machine.EVERY_S),
            gpu=ProbeRunner(Patient(GpuProbe()), machine.EVERY_S),
        ),
        coordination=coordination,
        deeds=Deeds(site.node, site.settings, site.places, pages, Chronicle(site.places), runner),
        saved_parts=saved_parts,
        snapshots=NodeSlots(site.places.shm, site.settings),
        farewell=Farewell(
            watch_launcher(site.launcher_pid), site.places, site.settings.sidecar.grace_s, runner
        ),
        teller=teller,
        metrics_address=metrics_address,
    )


def checkpoint_parts(site: Site) -> tuple[SavedParts, Storage]:
    """Who hashes this node's part of a checkpoint, and the checkpoint directory itself."""
    return PartHashing(), CheckpointDirectory(site.job, site.settings.checkpoint)


def rooms(site: Site) -> Mapping[str, Path]:
    """The file systems whose room matters, by purpose."""
    watched = {"shm": Path(site.settings.paths.shm_dir), "state": site.places.state}
    if site.settings.checkpoint.dir:
        watched["checkpoint"] = Path(site.settings.checkpoint.dir)
    return watched
