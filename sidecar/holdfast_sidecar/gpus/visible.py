"""Which GPUs a process sees, worked out from its environment as CUDA would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast_sidecar.readings.gpu import Gpu

VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
LOCAL_RANK = "LOCAL_RANK"
CHOOSING = (VISIBLE, ORDER, LOCAL_RANK)
"""The variables that choose; no others are read of a rank's environment."""


def visible_gpus(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> tuple[str, ...] | None:
    """UUIDs of the GPUs it sees, in CUDA's order; None where that can't be told.

    As CUDA has it, a list ends before its first entry that names no GPU, and one that names a GPU
    twice shows none at all.
    """
    in_order = _in_cuda_order(gpus, environment.get(ORDER, ""))
    listed = environment.get(VISIBLE)
    if listed is None:
        return None if in_order is None else tuple(gpu.uuid for gpu in in_order)
    found: list[str] = []
    taken: set[str] = set()
    for entry in (part.strip() for part in listed.split(",")):
        if entry.isdecimal() and in_order is None:
            return None
        uuid = _named(entry, gpus, in_order or ())
        if uuid is None:
            break
        if entry in taken:
            return ()
        taken.add(entry)
        found.append(uuid)
    return tuple(found)


def _in_cuda_order(gpus: Sequence[Gpu], order: str) -> list[Gpu] | None:
    """NVML counts by PCI address; CUDA by speed unless told otherwise, which is the same order
    where all are of one model, and can't be known from here where they are not."""
    if order != "PCI_BUS_ID" and len({gpu.model for gpu in gpus}) > 1:
        return None
    return sorted(gpus, key=lambda gpu: (gpu.pci, gpu.index))


def _named(entry: str, gpus: Sequence[Gpu], in_order: Sequence[Gpu]) -> str | None:
    if entry.isdecimal():
        return in_order[int(entry)].uuid if int(entry) < len(in_order) else None
    if entry.startswith("MIG-GPU-"):  # MIG-GPU-<uuid>/<instance>/<instance>, of older drivers
        return _only([g.uuid for g in gpus if g.uuid == entry[len("MIG-") :].partition("/")[0]])
    if entry.startswith("MIG-"):
        return _only([g.uuid for g in gpus if any(m.startswith(entry) for m in g.mig_uuids)])
    if entry.startswith("GPU-"):
        return _only([g.uuid for g in gpus if g.uuid.startswith(entry)])
    return None


def _only(uuids: Sequence[str]) -> str | None:
    """An abbreviation counts only while it fits one GPU."""
    return uuids[0] if len(uuids) == 1 else None
