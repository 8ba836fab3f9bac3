"""What a node's findings say about one of its ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from holdfast_sidecar.records.findings import Finding, Kind
from holdfast_sidecar.stragglers.place import Place

POWER = "-power"
NVLINK = "-nvlink"
"""In `what` of a GPU's finding: which of its troubles it is (`detectors.gpus`)."""

SURE_ENOUGH = 0.5
"""That the GPU in trouble is this rank's."""


@dataclass(frozen=True)
class Witness:
    """Each of them one line of evidence; empty: nothing was found."""

    throttled: str = ""
    is_power: bool = False
    """It is the power limit that holds its clock down, and neither heat nor a brake."""
    gpu_link: str = ""
    is_nvlink: bool = False
    shared: str = ""
    memory_errors: str = ""
    quota: str = ""
    memory: str = ""
    storage: str = ""
    heat: str = ""
    is_shared_by_mates: bool = True
    """Most of its node's ranks are slow too, or it is alone there. Else what is found about the
    node as a whole slows nobody by itself: ranks beside it are well in spite of it."""
    has_device: bool = False
    """It trains on a GPU."""
    is_host_only: bool = False
    """It trains on none, nor on anything like it."""


def hear(findings: Iterable[Finding], place: Place, is_shared_by_mates: bool = True) -> Witness:
    """What they say about the rank of this place."""
    about = [one for one in findings if one.node == place.node]
    of_gpu = [
        one
        for one in about
        if place.rank in one.ranks and one.gpu and one.rank_confidence >= SURE_ENOUGH
    ]
    throttled = [one for one in of_gpu if one.kind is Kind.GPU_THROTTLED]
    links = [one for one in of_gpu if one.kind is Kind.GPU_LINK_DEGRADED]
    return Witness(
        throttled=_first(throttled),
        is_power=bool(throttled) and all(POWER in one.what for one in throttled),
        gpu_link=_first(links),
        is_nvlink=any(NVLINK in one.what for one in links),
        shared=_of(of_gpu, Kind.GPU_SHARED),
        memory_errors=_of(of_gpu, Kind.ECC_STORM, Kind.GPU_MEMORY_FAILING),
        quota=_of(about, Kind.CPU_THROTTLED),
        memory=_of(about, Kind.MEMORY_PRESSURE),
        storage=_of(about, Kind.STORAGE_STALLED, Kind.STORAGE_SLOW),
        heat=_of(about, Kind.HOST_HOT),
        is_shared_by_mates=is_shared_by_mates,
        has_device=place.has_device,
        is_host_only=place.is_host_only,
    )


def _of(findings: Iterable[Finding], *kinds: Kind) -> str:
    return _first([one for one in findings if one.kind in kinds])


def _first(findings: Sequence[Finding]) -> str:
    """What the surest says first."""
    if not findings:
        return ""
    surest = max(findings, key=lambda one: one.confidence)
    return surest.evidence[0] if surest.evidence else surest.kind.value
