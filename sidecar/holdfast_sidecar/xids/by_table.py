"""What a number asks for on one GPU: by the table, by its own line, by the GPU's flags. Pure."""

from __future__ import annotations

from holdfast_sidecar.records.findings import Remedy
from holdfast_sidecar.xids.occurrence import Occurrence
from holdfast_sidecar.xids.scene import GpuState
from holdfast_sidecar.xids.table import NVLINK5, Entry


def by_table(one: Occurrence, entry: Entry, gpu: GpuState) -> tuple[Remedy, tuple[str, ...]]:
    """What the number asks for, on this GPU, by its line and by the GPU's own flags."""
    if one.number in NVLINK5:
        return _by_line(one)
    remedy, why = entry.remedy, [entry.note] if entry.note else []
    if one.number == 64 and gpu.remap_failed is not None:
        remedy = Remedy.REPLACE if gpu.remap_failed else Remedy.RESET_GPU
        why = [f"the GPU's flag says that remapping {'failed' if gpu.remap_failed else 'works'}"]
    if one.number in (64, 95) and remedy is Remedy.RESET_GPU and gpu.resets_by_reboot:
        remedy = Remedy.REBOOT_NODE
        why.append("on an A100 without MIG that takes a reboot")
    if one.link is not None:
        why.append(one.link.told)
    return remedy, tuple(why)


def _by_line(one: Occurrence) -> tuple[Remedy, tuple[str, ...]]:
    told = (one.link.told,) if one.link is not None else ()
    if one.is_fatal is None:
        return Remedy.NONE, (*told, "whether it is fatal was not told; the driver's word decides")
    return Remedy.RESET_GPU if one.is_fatal else Remedy.NONE, told


def is_worn_out(one: Occurrence, gpu: GpuState) -> bool:
    """The recovery action says how to get it going again, this flag that it will not last."""
    return one.number == 64 and bool(gpu.remap_failed)
