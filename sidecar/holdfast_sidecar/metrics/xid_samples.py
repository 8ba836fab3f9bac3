"""What is told about XIDs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast_sidecar.metrics.gpu_labels import labelled
from holdfast_sidecar.readings.gpu import Gpu, GpuReading
from holdfast_sidecar.readings.xids import XidReading
from holdfast_sidecar.records.metric import Sample, Told


def draw_xids(reading: XidReading, gpus: GpuReading | None, told: Told) -> Iterator[Sample]:
    """By the GPU's index; by its PCI address where no driver lists it."""
    names = {gpu.pci: name for name, gpu in labelled(_listed(reading, gpus))}
    for (pci, number), tally in sorted(reading.xids.items()):
        of = told.about(gpu=names.get(pci, pci), xid=str(number))
        yield from of("gpu_xid_errors_total", tally.seen)
        last = ("gpu_xid_last_timestamp_seconds", tally.last_s)
        yield from of(*last, remedy=tally.remedy.value)
        yield from of("gpu_xid_events_last_24h", tally.in_24h)
    for sxid, tally in sorted(reading.sxids.items()):
        yield from told("nvswitch_sxid_errors_total", tally.seen, sxid=str(sxid))


def _listed(reading: XidReading, gpus: GpuReading | None) -> Iterable[Gpu]:
    """While nothing can be read: those that were listed last."""
    if gpus is not None and gpus.gpus:
        return gpus.gpus
    return [Gpu(one.index, one.uuid, "", pci) for pci, one in reading.gpus.items()]
