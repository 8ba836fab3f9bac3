"""A GPU's links: PCIe narrower or slower than it could be, NVLink lost or noisy, fabric not ready.

An idle GPU lowers its PCIe generation, so width and generation are judged while it works.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from holdfast_sidecar.components.gpu.checks import about
from holdfast_sidecar.components.gpu.history import GpuContext, Growth, Track
from holdfast_sidecar.components.gpu.readings import Gpu, Signal
from holdfast_sidecar.records.findings import Finding, Kind, Moment, Remedy

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


def find_degraded_links(scene: GpuContext, moment: Moment) -> Iterator[Finding]:
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


# Whether GPUs compute behind links narrower or slower than they can be; remembered over idleness.
#
# A GPU with nothing to do slows its link down to save power, so an idle reading says nothing new:
# what counts is what was last seen at work, or a link that is as good as it can be.

AT_WORK_RATIO = 0.05
"""A GPU that was busy in a twentieth of the sampling time had its link awake at the end of it."""


@dataclass(frozen=True)
class Link:
    """Lanes and PCIe generation."""

    width: int
    generation: int

    def is_below(self, other: Link) -> bool:
        """Whether either is less."""
        return self.width < other.width or self.generation < other.generation

    @property
    def words(self) -> str:
        """As on a data sheet."""
        return f"PCIe {self.generation} x{self.width}"


@dataclass(frozen=True)
class LinkMemory:
    """By the GPU's UUID: the best link it was ever seen with, and what is wrong with it since."""

    best: Mapping[str, Link] = field(default_factory=dict)
    wrong: Mapping[str, str] = field(default_factory=dict)

    def slow(self, uuid: str) -> str:
        """What is less than it should be; empty: nothing that is known of."""
        return self.wrong.get(uuid, "")


def remember_links(memory: LinkMemory, gpus: Iterable[Gpu]) -> LinkMemory:
    """The memory with what these GPUs say now."""
    best, wrong = dict(memory.best), dict(memory.wrong)
    for gpu in gpus:
        if (link := _link(gpu)) is None:
            continue
        had = best.get(gpu.uuid, link)
        best[gpu.uuid] = Link(max(had.width, link.width), max(had.generation, link.generation))
        able = _most(gpu) or best[gpu.uuid]
        if not link.is_below(able):
            wrong.pop(gpu.uuid, None)
        elif (gpu.value(Signal.BUSY) or 0.0) >= AT_WORK_RATIO:
            wrong[gpu.uuid] = f"{link.words}, which could be {able.words}"
    return memory if (best, wrong) == (memory.best, memory.wrong) else LinkMemory(best, wrong)


def _link(gpu: Gpu) -> Link | None:
    return _of(gpu, Signal.PCIE_WIDTH, Signal.PCIE_GENERATION)


def _most(gpu: Gpu) -> Link | None:
    """What GPU, slot and board can do together, as the driver says."""
    return _of(gpu, Signal.PCIE_WIDTH_MOST, Signal.PCIE_GENERATION_MOST)


def _of(gpu: Gpu, width: Signal, generation: Signal) -> Link | None:
    wide, fast = gpu.value(width), gpu.value(generation)
    if gpu.lost or not wide or not fast or wide < 0 or fast < 0:
        return None
    return Link(int(wide), int(fast))


# GPUs that are slowed down, by the share of time that their own counters say.
#
# A software power cap is how a GPU under full load runs, so by itself it is nothing; it is told
# where one GPU of a node is held back more than the others, and is slower for it.

THROTTLING_WINDOW_S = 60.0
THROTTLING_LEAST_S = 30.0
"""Shares of less time than this say more of the moment than of the GPU."""

THERMAL_SHARE = 0.1
"""Clocks are halved or worse meanwhile: a tenth of the time is some 5 % of a rank's pace, for
which in synchronous training all ranks wait. gpud alarms when six of ten samples show it."""

BRAKE_SHARE = 0.01
"""The power supply asks for it when it is overloaded: it never belongs to healthy operation."""

CAP_SHARE_MORE = 0.3
CAP_CLOCK_RATIO = 0.95
"""Capped for so much more of the time than the middle one of its neighbours, and that much slower:
the spread of leakage among good chips is some 2-3 % of clock at the same power."""

CAP_NEIGHBOURS = 3
"""Fewer tell nothing of what is usual."""

THROTTLING_BUSY_RATIO = 0.5
"""Below this a GPU's clocks say nothing."""

WHYS = (
    (Signal.THROTTLED_HARDWARE_THERMAL, THERMAL_SHARE, "hot", "the hardware, for heat"),
    (Signal.THROTTLED_SOFTWARE_THERMAL, THERMAL_SHARE, "warm", "the driver, for heat"),
    (Signal.THROTTLED_BRAKE, BRAKE_SHARE, "brake", "the power supply's brake"),
)

NO_MARGIN_CELSIUS = 0.0
"""The margin is what is left to the GPU's own limit, whichever model it is: none for half a
minute. Where throttle time is counted too, that says what it costs."""


Cap = tuple[float, float]
"""Share of time at the power limit, and the clock."""


def find_throttled_gpus(scene: GpuContext, moment: Moment) -> Iterator[Finding]:
    """Heat, brakes, and caps that hold one GPU back more than its neighbours."""
    caps = {gpu.uuid: cap for gpu, track in scene.answering() if (cap := _cap(track)) is not None}
    for gpu, track in scene.answering():
        yield from _slowed(gpu, track, scene, moment)
        yield from _without_margin(gpu, track, scene, moment)
        yield from _held_back(gpu, caps, scene, moment)


def _slowed(gpu: Gpu, track: Track, scene: GpuContext, moment: Moment) -> Iterator[Finding]:
    for signal, most, trouble, by_whom in WHYS:
        growth = track.growth(signal, THROTTLING_WINDOW_S, THROTTLING_LEAST_S)
        if growth is not None and growth.per_s >= most:
            text = f"slowed down by {by_whom}, {min(1.0, growth.per_s):.0%} of the last minute"
            margin = gpu.value(Signal.TEMPERATURE_MARGIN)
            if margin is not None:
                text += f"; {margin:.0f} degrees below its limit now"
            yield about(gpu, Kind.GPU_THROTTLED, text, 0.9, scene, moment, trouble)


def _without_margin(gpu: Gpu, track: Track, scene: GpuContext, moment: Moment) -> Iterator[Finding]:
    if track.held(
        lambda values: values.get(Signal.TEMPERATURE_MARGIN, 1.0) <= NO_MARGIN_CELSIUS,
        THROTTLING_LEAST_S,
    ):
        text = "at the temperature from which it slows itself down"
        yield about(gpu, Kind.GPU_THROTTLED, text, 0.7, scene, moment, "margin")


def _held_back(
    gpu: Gpu, caps: Mapping[str, Cap], scene: GpuContext, moment: Moment
) -> Iterator[Finding]:
    mine = caps.get(gpu.uuid)
    others = [
        caps[other.uuid]
        for other in scene.reading.gpus
        if other.uuid != gpu.uuid and other.model == gpu.model and other.uuid in caps
    ]
    if mine is None or len(others) < CAP_NEIGHBOURS:
        return
    share = statistics.median(one[0] for one in others)
    clock = statistics.median(one[1] for one in others)
    if mine[0] >= share + CAP_SHARE_MORE and mine[1] <= CAP_CLOCK_RATIO * clock:
        text = (
            f"at its power limit {mine[0]:.0%} of the last minute, its neighbours {share:.0%}: "
            f"its clock is {mine[1] / 1e6:.0f} MHz, theirs {clock / 1e6:.0f}"
        )
        yield about(gpu, Kind.GPU_THROTTLED, text, 0.6, scene, moment, "power")


def _cap(track: Track) -> Cap | None:
    """Those of a GPU that works."""
    growth = track.growth(Signal.THROTTLED_POWER, THROTTLING_WINDOW_S, THROTTLING_LEAST_S)
    clock = track.median(Signal.SM_CLOCK, THROTTLING_WINDOW_S)
    busy = track.median(Signal.BUSY, THROTTLING_WINDOW_S)
    if growth is None or clock is None or busy is None or busy < THROTTLING_BUSY_RATIO:
        return None
    return min(1.0, growth.per_s), clock
