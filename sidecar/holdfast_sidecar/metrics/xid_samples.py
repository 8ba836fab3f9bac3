"""What is told about XIDs."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.metrics.samples import Sample, Told
from holdfast_sidecar.readings.xids import XidReading


def draw_xids(reading: XidReading, told: Told) -> Iterator[Sample]:
    """By the GPU's index; by its PCI address where no driver listed it."""
    for (pci, number), tally in sorted(reading.xids.items()):
        known = reading.gpus.get(pci)
        of = told.about(gpu=pci if known is None else str(known.index), xid=str(number))
        yield from of("gpu_xid_errors_total", tally.seen)
        last = ("gpu_xid_last_timestamp_seconds", tally.last_s)
        yield from of(*last, remedy=tally.remedy.value)
        yield from of("gpu_xid_events_last_24h", tally.in_24h)
    for sxid, tally in sorted(reading.sxids.items()):
        yield from told("nvswitch_sxid_errors_total", tally.seen, sxid=str(sxid))
