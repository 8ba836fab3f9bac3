"""Which slowing down is a finding, and which is how GPUs run."""

from __future__ import annotations

import pytest
from tests.unit.components.gpu.nodes import found, gpu, troubles, watched, without

from holdfast_sidecar.components.gpu.readings import Gpu, Signal
from holdfast_sidecar.records.findings import Kind


@pytest.mark.parametrize(
    ("signal", "share", "trouble"),
    [
        ("THROTTLED_HARDWARE_THERMAL", 0.2, "hot"),
        ("THROTTLED_SOFTWARE_THERMAL", 0.2, "warm"),
        ("THROTTLED_BRAKE", 0.02, "brake"),
    ],
)
def test_heat_and_brakes_are_told_by_their_share_of_time(
    signal: str, share: float, trouble: str
) -> None:
    scene = watched(lambda t: [gpu(0, None, **{signal: 100 + share * t}, TEMPERATURE_MARGIN=2)], 60)
    (finding,) = found(scene)
    assert (finding.kind, finding.what) == (Kind.GPU_THROTTLED, f"gpu0-{trouble}")
    assert f"{share:.0%} of the last minute; 2 degrees" in finding.evidence[0]
    assert troubles(watched(lambda t: [gpu(0, None, **{signal: 100 + share * t / 4})], 60)) == []


def test_seconds_of_heat_in_a_minute_are_not_told_before_half_a_minute_is_seen() -> None:
    scene = watched(lambda t: [gpu(0, THROTTLED_HARDWARE_THERMAL=t)], 20)
    assert troubles(scene) == []


def test_a_whole_node_at_its_power_limit_is_at_work() -> None:
    scene = watched(lambda t: [gpu(i, THROTTLED_POWER=0.9 * t) for i in range(8)], 60)
    assert troubles(scene) == []


def slower(number: int, clock: float, share: float = 0.8, busy: float = 1.0) -> object:
    """One of eight GPUs is more at its limit than the others, at this clock."""

    def at(t: float) -> list[Gpu]:
        others = [gpu(i, THROTTLED_POWER=0.1 * t) for i in range(8) if i != number]
        odd = gpu(number, THROTTLED_POWER=share * t, SM_CLOCK=clock, BUSY=busy)
        return [*others, odd]

    return at


def test_one_gpu_held_back_by_its_power_limit_more_than_its_neighbours_is_told() -> None:
    (finding,) = found(watched(slower(5, 1.4e9), 60))  # type: ignore[arg-type]
    assert (finding.what, finding.ranks) == ("gpu5-power", [5])
    assert finding.evidence[0].endswith(
        "at its power limit 80% of the last minute, its neighbours 10%: "
        "its clock is 1400 MHz, theirs 1700"
    )


def test_one_that_is_as_fast_as_its_neighbours_or_idle_is_not() -> None:
    assert troubles(watched(slower(5, 1.69e9), 60)) == []  # type: ignore[arg-type]
    assert troubles(watched(slower(5, 1.4e9, share=0.3), 60)) == []  # type: ignore[arg-type]
    assert troubles(watched(slower(5, 0.3e9, busy=0.0), 60)) == []  # type: ignore[arg-type]


def test_with_two_neighbours_nobody_knows_what_is_usual() -> None:
    def at(t: float) -> list[Gpu]:
        odd = gpu(2, THROTTLED_POWER=0.8 * t, SM_CLOCK=1e9)
        return [gpu(0, THROTTLED_POWER=0), gpu(1, THROTTLED_POWER=0), odd]

    assert troubles(watched(at, 60)) == []


def test_without_any_margin_a_gpu_is_hot_whatever_its_temperature_is() -> None:
    for degrees in (60.0, 84.0, 95.0):
        assert troubles(watched(lambda _, d=degrees: [gpu(0, TEMPERATURE=d)], 60)) == []  # type: ignore[misc]
    scene = watched(lambda _: [gpu(0, TEMPERATURE=84, TEMPERATURE_MARGIN=-1)], 60)
    assert troubles(scene) == [("gpu_throttled", "gpu0-margin")]
    touched = watched(lambda t: [gpu(0, TEMPERATURE_MARGIN=-1 if t > 50 else 1)], 60)
    assert troubles(touched) == []


def test_a_driver_that_counts_no_throttle_time_is_not_judged_by_it() -> None:
    bare = without(gpu(0), Signal.THROTTLED_HARDWARE_THERMAL, Signal.TEMPERATURE_MARGIN)
    assert troubles(watched(lambda _: [bare], 60)) == []
