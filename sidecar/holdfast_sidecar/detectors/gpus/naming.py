"""A finding about one GPU: who it is, whose, and how one trouble of it is told from another."""

from __future__ import annotations

from holdfast_sidecar.gpus.ownership import Source, Tie
from holdfast_sidecar.gpus.scene import GpuScene
from holdfast_sidecar.readings.gpu import Gpu
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.findings import Finding, Kind, Remedy


def about(
    gpu: Gpu,
    kind: Kind,
    text: str,
    confidence: float,
    scene: GpuScene,
    moment: Moment,
    trouble: str = "",
    remedy: Remedy = Remedy.NONE,
) -> Finding:
    """The finding; `trouble` sets apart what may be wrong with one GPU at the same time."""
    ranks = scene.ownership.ranks_of(gpu.uuid)
    sureness = scene.ownership.sureness(gpu.uuid) if ranks else 1.0
    return Finding(
        kind=kind,
        node=moment.node,
        since_unix_s=moment.now_unix_s,
        confidence=confidence,
        ranks=ranks,
        evidence=[f"{named(gpu)}: {text}", *_whose(gpu, scene)],
        what=f"gpu{gpu.index}-{trouble}" if trouble else f"gpu{gpu.index}",
        gpu=gpu.uuid,
        gpu_index=gpu.index,
        remedy=remedy,
        rank_confidence=sureness,
    )


def named(gpu: Gpu) -> str:
    """`GPU 3 (0000:17:00.0)`."""
    return f"GPU {gpu.index} ({gpu.pci})" if gpu.pci else f"GPU {gpu.index}"


def _whose(gpu: Gpu, scene: GpuScene) -> list[str]:
    return [_say(tie) for tie in scene.ownership.of_gpu(gpu.uuid)]


def _say(tie: Tie) -> str:
    rank = f"rank {tie.rank}'s (local {tie.local_rank})"
    if tie.source is Source.BEFORE:
        return f"it was {rank}"
    return f"it is {rank}, by {tie.source.value}"
