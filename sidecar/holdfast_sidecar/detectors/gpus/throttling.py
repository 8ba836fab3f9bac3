"""GPUs that are slowed down, by the share of time that their own counters say.

A software power cap is how a GPU under full load runs, so by itself it is nothing; it is told where
one GPU of a node is held back more than the others, and is slower for it.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping

from holdfast_sidecar.detectors.gpus.naming import about
from holdfast_sidecar.gpus.history import Track
from holdfast_sidecar.gpus.scene import GpuScene
from holdfast_sidecar.readings.gpu import Gpu, Signal
from holdfast_sidecar.records.clock import Moment
from holdfast_sidecar.records.findings import Finding, Kind

WINDOW_S = 60.0
LEAST_S = 30.0
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

BUSY_RATIO = 0.5
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


def find_throttled_gpus(scene: GpuScene, moment: Moment) -> Iterator[Finding]:
    """Heat, brakes, and caps that hold one GPU back more than its neighbours."""
    caps = {gpu.uuid: cap for gpu, track in scene.answering() if (cap := _cap(track)) is not None}
    for gpu, track in scene.answering():
        yield from _slowed(gpu, track, scene, moment)
        yield from _without_margin(gpu, track, scene, moment)
        yield from _held_back(gpu, caps, scene, moment)


def _slowed(gpu: Gpu, track: Track, scene: GpuScene, moment: Moment) -> Iterator[Finding]:
    for signal, most, trouble, by_whom in WHYS:
        growth = track.growth(signal, WINDOW_S, LEAST_S)
        if growth is not None and growth.per_s >= most:
            text = f"slowed down by {by_whom}, {min(1.0, growth.per_s):.0%} of the last minute"
            margin = gpu.value(Signal.TEMPERATURE_MARGIN)
            if margin is not None:
                text += f"; {margin:.0f} degrees below its limit now"
            yield about(gpu, Kind.GPU_THROTTLED, text, 0.9, scene, moment, trouble)


def _without_margin(gpu: Gpu, track: Track, scene: GpuScene, moment: Moment) -> Iterator[Finding]:
    if track.held(
        lambda values: values.get(Signal.TEMPERATURE_MARGIN, 1.0) <= NO_MARGIN_CELSIUS, LEAST_S
    ):
        text = "at the temperature from which it slows itself down"
        yield about(gpu, Kind.GPU_THROTTLED, text, 0.7, scene, moment, "margin")


def _held_back(
    gpu: Gpu, caps: Mapping[str, Cap], scene: GpuScene, moment: Moment
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
    growth = track.growth(Signal.THROTTLED_POWER, WINDOW_S, LEAST_S)
    clock = track.median(Signal.SM_CLOCK, WINDOW_S)
    busy = track.median(Signal.BUSY, WINDOW_S)
    if growth is None or clock is None or busy is None or busy < BUSY_RATIO:
        return None
    return min(1.0, growth.per_s), clock
