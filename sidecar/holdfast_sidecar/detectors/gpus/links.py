"""A GPU's links: PCIe narrower or slower than it could be, NVLink lost or noisy, fabric not ready.

An idle GPU lowers its PCIe generation, so width and generation are judged while it works.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from holdfast_sidecar.detectors.gpus.naming import about
from holdfast_sidecar.gpus.history import Growth, Track
from holdfast_sidecar.gpus.scene import GpuScene
from holdfast_sidecar.readings.gpu import Gpu, Signal
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.findings import Finding, Kind, Remedy

WINDOW_S = 60.0
LEAST_S = 30.0

BUSY_RATIO = 0.5
BUSY_FOR_S = 25.0
"""A GPU is back at full speed milliseconds after work arrives. Links are read every 10 s and
activity every second: so long must it have been at work that its link was read twice meanwhile."""

TRANSFERS_PER_S = {1: 2.5e9, 2: 5e9, 3: 8e9, 4: 16e9, 5: 32e9, 6: 64e9}
"""Bits a second and lane by PCIe generation."""

BIT_ERRORS = 1e-12
"""The error rate up to which PCIe calls a link good. DCGM takes the same: rounded up it is 16
replays a minute for generation 4 with 16 lanes, 31 for generation 5."""

CRC_PER_S = 100.0
"""NVLink checksum errors a second, from which on DCGM's health check fails; below it warns."""

COMPLETED = 3
STARTED = (1, 2)
"""NVML_GPU_FABRIC_STATE: 0 not supported, 1 not started, 2 in progress, 3 completed."""

READY_AFTER_S = 60.0
"""Registering with the fabric manager takes seconds after a boot or a reset."""

Trouble = tuple[str, str, float, Remedy]
"""Its name, what is told, how sure, what is to be done."""


def find_degraded_links(scene: GpuScene, moment: Moment) -> Iterator[Finding]:
    """One finding for each link, and for each way in which it is bad."""
    for gpu, track in scene.answering():
        for judge in (_narrow, _slow, _noisy, _nvlinks, _nvlink_errors, _fabric):
            for trouble, text, confidence, remedy in judge(gpu, track):
                yield about(
                    gpu, Kind.GPU_LINK_DEGRADED, text, confidence, scene, moment, trouble, remedy
                )


def _narrow(gpu: Gpu, track: Track) -> Iterator[Trouble]:
    most = gpu.value(Signal.PCIE_WIDTH_MOST)
    if most and track.held(_works_below(Signal.PCIE_WIDTH, most), BUSY_FOR_S):
        width = gpu.value(Signal.PCIE_WIDTH) or 0.0
        yield "pcie-width", f"PCIe has {width:.0f} of {most:.0f} lanes", 0.9, Remedy.NONE


def _slow(gpu: Gpu, track: Track) -> Iterator[Trouble]:
    most = gpu.value(Signal.PCIE_GENERATION_MOST)
    if most and track.held(_works_below(Signal.PCIE_GENERATION, most), BUSY_FOR_S):
        now = gpu.value(Signal.PCIE_GENERATION) or 0.0
        text = f"PCIe runs at generation {now:.0f} of {most:.0f} while it works"
        yield "pcie-speed", text, 0.9, Remedy.NONE


def _works_below(signal: Signal, most: float) -> Callable[[Mapping[Signal, float]], bool]:
    def is_so(values: Mapping[Signal, float]) -> bool:
        return values.get(Signal.BUSY, 0.0) >= BUSY_RATIO and 0.0 < values.get(signal, most) < most

    return is_so


def replays_most(generation: float | None, lanes: float | None) -> int | None:
    """Replays a minute that a good link may have; None: its generation or width is not told."""
    rate = TRANSFERS_PER_S.get(int(generation or 0))
    return None if rate is None or not lanes else math.ceil(rate * BIT_ERRORS * 60 * lanes)


def _noisy(gpu: Gpu, track: Track) -> Iterator[Trouble]:
    most = replays_most(
        gpu.value(Signal.PCIE_GENERATION_MOST) or gpu.value(Signal.PCIE_GENERATION),
        gpu.value(Signal.PCIE_WIDTH_MOST) or gpu.value(Signal.PCIE_WIDTH),
    )
    replays = track.growth(Signal.PCIE_REPLAYS, WINDOW_S, LEAST_S)
    if most is not None and replays is not None and replays.per_s * 60 > most:
        text = f"{replays.per_s * 60:.0f} PCIe replays a minute, {most} are usual"
        yield "pcie-replays", text, 0.8, Remedy.NONE
    for signal, name in ((Signal.PCIE_FATAL, "fatal"), (Signal.PCIE_NON_FATAL, "non-fatal")):
        errors = track.growth(signal, WINDOW_S)
        if errors is not None and errors.amount >= 1:
            text = f"{errors.amount:.0f} {name} PCIe errors in the last minute"
            yield f"pcie-{name}", text, 0.8, Remedy.NONE


def _nvlinks(gpu: Gpu, track: Track) -> Iterator[Trouble]:
    expected = gpu.value(Signal.NVLINKS_EXPECTED)
    if expected and track.held(
        lambda values: values.get(Signal.NVLINKS_ACTIVE, expected) < expected, BUSY_FOR_S
    ):
        active = gpu.value(Signal.NVLINKS_ACTIVE) or 0.0
        text = f"{active:.0f} of {expected:.0f} NVLinks are up"
        yield "nvlinks", text, 0.95, Remedy.RESET_GPU


def _nvlink_errors(gpu: Gpu, track: Track) -> Iterator[Trouble]:
    """What DCGM's health check fails a GPU for; up to Hopper, and what has taken its place since.

    Retried transfers got through in the end: they are told, and nobody is blamed. From Blackwell on
    links recover as a matter of course, and those that failed to are counted apart.
    """
    counts_failed = gpu.value(Signal.NVLINK_RECOVERY_FAILED) is not None
    watched: tuple[tuple[Signal, str, str, Remedy], ...] = (
        (Signal.NVLINK_REPLAYS, "nvlink-replays", "replays", Remedy.NONE),
        (Signal.NVLINK_RECOVERIES, "nvlink-recoveries", "recoveries", Remedy.NONE),
        (Signal.NVLINK_RECOVERY_FAILED, "nvlink-failed", "failed recoveries", Remedy.RESET_GPU),
    )
    for signal, trouble, name, remedy in watched:
        if signal is Signal.NVLINK_RECOVERIES and counts_failed:
            continue
        errors = track.growth(signal, WINDOW_S)
        if errors is not None and errors.amount >= 1:
            text = f"{errors.amount:.0f} NVLink {name} in the last minute"
            yield trouble, text, 0.8, remedy
    checksums = track.growth(Signal.NVLINK_CRC, WINDOW_S, LEAST_S)
    if _is_above(checksums, CRC_PER_S):
        text = f"{CRC_PER_S:.0f} NVLink checksum errors a second, or more"
        yield "nvlink-crc", text, 0.8, Remedy.NONE


def _is_above(growth: Growth | None, per_s: float) -> bool:
    return growth is not None and growth.per_s >= per_s


def _fabric(gpu: Gpu, track: Track) -> Iterator[Trouble]:
    if track.held(
        lambda values: values.get(Signal.FABRIC_STATE, COMPLETED) in STARTED, READY_AFTER_S
    ):
        yield "fabric", "it has not joined the NVLink fabric", 0.9, Remedy.NONE
    if gpu.value(Signal.FABRIC_DEGRADED):
        yield "fabric-degraded", "the NVLink fabric calls it degraded", 0.8, Remedy.NONE
