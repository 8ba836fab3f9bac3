"""GPU memory that is failing, or about to: rows and pages taken out of use, and error storms."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast_sidecar.detectors.gpus.naming import about
from holdfast_sidecar.gpus.history import Track
from holdfast_sidecar.gpus.scene import GpuScene
from holdfast_sidecar.readings.gpu import Gpu, Signal
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.findings import Finding, Kind, Remedy

REMAPS_MOST = 512
"""Rows remapped for uncorrectable errors: DCGM's health check fails a GPU from here on
(DcgmGPUHardwareLimits.h)."""

PAGES_MOST = 63
"""Retired pages, before Ampere: the table holds 64; DCGM's health check fails from here on."""

DOUBLE_BIT_PAGES_MOST = 15
"""Of those, for uncorrectable errors: DCGM's softer limit."""

STORM_PER_S = 100.0
"""Corrected errors a second. One GPU was reported at 4,600 a second and later 17,700, until the
driver hung without ever reporting an uncorrectable one (NVSentinel issue 1748). DCGM's own limit,
10, is called a dummy value in its source. Between them: a fortieth of the former, and 3,000 errors
in the half minute that it must last, where a healthy GPU counts a handful in weeks."""

WORST_PER_S = 4600.0
"""The first of these figures: a storm like this is surer to end badly, and is saved for anew."""

STORM_S = 30.0
"""It must go on in both halves of this: one bad row that is read through once is no storm."""


def find_failing_memory(scene: GpuScene, moment: Moment) -> Iterator[Finding]:
    """One finding for each thing that is wrong; none of them ends a rank."""
    for gpu, _ in scene.answering():
        for trouble, text, confidence, remedy in _troubles(gpu):
            yield about(
                gpu, Kind.GPU_MEMORY_FAILING, text, confidence, scene, moment, trouble, remedy
            )


def find_error_storms(scene: GpuScene, moment: Moment) -> Iterator[Finding]:
    """Corrected errors at a rate that foretells the end."""
    for gpu, track in scene.answering():
        rate = _storm_per_s(track)
        if rate is not None:
            text = f"{rate:,.0f} corrected memory errors a second for {STORM_S:.0f} s"
            sure = 0.95 if rate >= WORST_PER_S else 0.9
            yield about(gpu, Kind.ECC_STORM, text, sure, scene, moment)


def _storm_per_s(track: Track) -> float | None:
    halves = track.halves(Signal.ECC_CORRECTED, STORM_S)
    if halves is None or min(half.per_s for half in halves) < STORM_PER_S:
        return None
    return sum(half.amount for half in halves) / sum(half.seconds for half in halves)


Trouble = tuple[str, str, float, Remedy]
"""Its name, what is told, how sure, what is to be done."""


def _troubles(gpu: Gpu) -> Iterator[Trouble]:
    yield from _remapping(gpu)
    yield from _headroom(gpu)
    yield from _retirement(gpu)
    if gpu.value(Signal.SRAM_THRESHOLD_EXCEEDED):
        # NVIDIA's criterion for a field diagnosis and a return.
        yield "sram", "its SRAM had more errors than it may have", 1.0, Remedy.REPLACE


def _remapping(gpu: Gpu) -> Iterator[Trouble]:
    if gpu.value(Signal.REMAP_FAILURE):
        # The flag, and not XID 64, says that it is for good: a reset may mask that one.
        yield "remap-failure", "a row of memory could not be remapped", 1.0, Remedy.REPLACE
    if gpu.value(Signal.REMAP_PENDING):
        text = "a row of memory is to be remapped, which takes a reset"
        yield "remap-pending", text, 1.0, Remedy.RESET_GPU
    rows = gpu.value(Signal.REMAPPED_UNCORRECTABLE) or 0.0
    if rows >= REMAPS_MOST:
        yield "remaps", f"{rows:.0f} rows were remapped (of {REMAPS_MOST})", 0.9, Remedy.REPLACE


def _headroom(gpu: Gpu) -> Iterator[Trouble]:
    """A bank without spare rows works until its next bad row, which then can't be remapped."""
    none, few = gpu.value(Signal.BANKS_NONE_LEFT) or 0.0, gpu.value(Signal.BANKS_FEW_LEFT) or 0.0
    if none:
        text = f"{none:.0f} memory banks have no spare row left: the next bad one is for good"
        yield "no-spare-rows", text, 0.8, Remedy.NONE
    elif few:
        text = f"{few:.0f} memory banks have hardly a spare row left"
        yield "few-spare-rows", text, 0.5, Remedy.NONE


def _retirement(gpu: Gpu) -> Iterator[Trouble]:
    uncorrectable = gpu.value(Signal.RETIRED_UNCORRECTABLE) or 0.0
    pages = uncorrectable + (gpu.value(Signal.RETIRED_CORRECTABLE) or 0.0)
    if pages >= PAGES_MOST:
        yield "pages", f"{pages:.0f} pages of memory are retired", 0.9, Remedy.REPLACE
    elif uncorrectable > DOUBLE_BIT_PAGES_MOST:
        text = f"{uncorrectable:.0f} pages of memory are retired for uncorrectable errors"
        yield "pages", text, 0.6, Remedy.NONE
    if gpu.value(Signal.RETIREMENT_PENDING):
        text = "a page of memory is to be retired, which takes a reset"
        yield "page-pending", text, 1.0, Remedy.RESET_GPU
