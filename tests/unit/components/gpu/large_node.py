"""A node as they are rented: eight GPUs, as many ranks, and a network card for each."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.export.picture import (
    FABRIC,
    GPU,
    MEMORY_WORDS,
    MLX5,
    NUMBER_WORDS,
    SNAPSHOT_WORDS,
    picture,
    ranks,
    with_words,
)
from tests.unit.ranks.scene import history, look, steps

from holdfast.contract.page import Phase
from holdfast_sidecar.components.gpu.history import EnergyAccount, GpuSummary
from holdfast_sidecar.components.gpu.ownership import GpuOwnership, OwnershipSource, Tie
from holdfast_sidecar.components.gpu.readings import GpuReading
from holdfast_sidecar.components.network.readings import FabricReading, LinkStory
from holdfast_sidecar.export.state import TickState
from holdfast_sidecar.ranks.observation import RankHistory
from holdfast_sidecar.records.reports import Point, RankEnergy


def node_of(count: int, is_leader: bool = True) -> TickState:
    """Everything known of that many ranks, GPUs and ports; the host as in the golden picture."""
    shown = picture(is_leader)
    gpus = tuple(
        replace(GPU, index=n, uuid=f"GPU-{n}", pci=f"0000:0{n}:00.0") for n in range(count)
    )
    ports = [
        replace(MLX5, device=replace(MLX5.device, name=f"mlx5_{n}", pci=f"0000:1{n}:00.0"))
        for n in range(count)
    ]
    fabric = FabricReading(
        {port.name: port for port in ports},
        {port.name: LinkStory(port.name, was_up=True) for port in ports},
    )
    ties = {n: Tie(n, n, 1000, 77 + n, (f"GPU-{n}",), OwnershipSource.TORCH) for n in range(count)}
    points = (Point(1.0, 1000.0, 20, 2000), Point(9.0, 3000.0, 40, 6000))
    energy = {n: RankEnergy(1000, 77 + n, 5000.0, 400.0, points=points) for n in range(count)}
    machine = replace(
        shown.machine,
        gpu=GpuReading(True, "570.1", gpus, count, read_at_s=9.0, took_s=0.01),
        fabric=fabric if count else FABRIC,
    )
    return replace(
        shown,
        ranks=ranks(*(_rank(n, count) for n in range(count))),
        machine=machine,
        gpus=GpuSummary(GpuOwnership(ties), EnergyAccount(energy)),
    )


def _rank(number: int, world_size: int) -> RankHistory:
    one = look(
        10.0,
        Phase.BACKWARD,
        since_s=9.9,
        rank=number,
        step=45,
        loss=0.25,
        records=steps(20, forward=30, data=5),
        world_size=world_size,
    )
    return history(with_words(one, {**SNAPSHOT_WORDS, **NUMBER_WORDS, **MEMORY_WORDS}))
