"""Links that are worse than they could be."""

from __future__ import annotations

import pytest
from tests.unit.components.gpu.nodes import found, gpu, troubles, watched, without

from holdfast_sidecar.components.gpu.links import replays_most
from holdfast_sidecar.components.gpu.readings import Gpu, Signal
from holdfast_sidecar.records.findings import Remedy


def test_a_narrow_or_slow_link_is_told_while_the_gpu_works() -> None:
    """Gen 2 with 16 lanes went unnoticed for hours of training at full utilisation."""
    slow = watched(lambda _: [gpu(0, PCIE_GENERATION=2)], 30)
    assert troubles(slow) == [("gpu_link_degraded", "gpu0-pcie-speed")]
    narrow = watched(lambda _: [gpu(0, PCIE_WIDTH=8)], 30)
    assert troubles(narrow) == [("gpu_link_degraded", "gpu0-pcie-width")]
    assert found(narrow)[0].evidence[0].endswith("PCIe has 8 of 16 lanes")


def test_an_idle_gpu_lowers_its_generation_and_that_is_no_fault() -> None:
    assert troubles(watched(lambda _: [gpu(0, BUSY=0.0, PCIE_GENERATION=1)], 60)) == []


def test_a_gpu_that_has_just_begun_to_work_may_still_be_slow() -> None:
    def at(t: float) -> list[Gpu]:
        return [gpu(0, PCIE_GENERATION=1 if t < 60 else 5, BUSY=0.0 if t < 50 else 1.0)]

    for until_s in range(48, 85):
        assert troubles(watched(at, until_s)) == []


def test_a_width_of_nought_is_no_width() -> None:
    assert troubles(watched(lambda _: [gpu(0, PCIE_WIDTH=0, PCIE_GENERATION=0)], 60)) == []


@pytest.mark.parametrize(
    ("generation", "lanes", "most"),
    [(3, 16, 8), (4, 16, 16), (5, 16, 31), (5, 8, 16), (6, 16, 62), (1, 1, 1)],
)
def test_replays_are_usual_up_to_what_the_standard_allows(
    generation: int, lanes: int, most: int
) -> None:
    assert replays_most(generation, lanes) == most


def test_of_an_unknown_generation_no_number_of_replays_is_too_many() -> None:
    assert replays_most(9, 16) is None
    assert replays_most(None, 16) is None
    assert replays_most(5, None) is None


def test_more_replays_than_that_are_told() -> None:
    assert troubles(watched(lambda t: [gpu(0, PCIE_REPLAYS=t * 30 / 60)], 60)) == []
    noisy = watched(lambda t: [gpu(0, PCIE_REPLAYS=t * 35 / 60)], 60)
    assert troubles(noisy) == [("gpu_link_degraded", "gpu0-pcie-replays")]


@pytest.mark.parametrize(
    ("signal", "trouble", "remedy"),
    [
        ("PCIE_FATAL", "pcie-fatal", Remedy.NONE),
        ("PCIE_NON_FATAL", "pcie-non-fatal", Remedy.NONE),
        ("NVLINK_REPLAYS", "nvlink-replays", Remedy.NONE),
        ("NVLINK_RECOVERIES", "nvlink-recoveries", Remedy.NONE),
        ("NVLINK_RECOVERY_FAILED", "nvlink-failed", Remedy.RESET_GPU),
    ],
)
def test_one_such_error_is_told_for_a_minute_and_those_of_before_are_not(
    signal: str, trouble: str, remedy: Remedy
) -> None:
    def at(t: float) -> list[Gpu]:
        one = gpu(0, None, **{signal: 40 if t < 30 else 41})
        is_hopper = signal == "NVLINK_RECOVERIES"
        return [without(one, Signal.NVLINK_RECOVERY_FAILED) if is_hopper else one]

    assert troubles(watched(at, 29)) == []
    (finding,) = found(watched(at, 31))
    assert (finding.what, finding.remedy) == (f"gpu0-{trouble}", remedy)
    assert troubles(watched(at, 110)) == []


def test_links_that_recover_as_a_matter_of_course_are_judged_by_those_that_did_not() -> None:
    assert troubles(watched(lambda t: [gpu(0, NVLINK_RECOVERIES=5 * t)], 60)) == []


def test_nvlink_checksums_are_told_by_their_rate() -> None:
    assert troubles(watched(lambda t: [gpu(0, NVLINK_CRC=90 * t)], 60)) == []
    noisy = watched(lambda t: [gpu(0, NVLINK_CRC=110 * t)], 60)
    assert troubles(noisy) == [("gpu_link_degraded", "gpu0-nvlink-crc")]


def test_an_nvlink_that_is_down_is_told_also_on_an_idle_gpu() -> None:
    (finding,) = found(watched(lambda _: [gpu(0, NVLINKS_ACTIVE=17, BUSY=0.0)], 30))
    assert (finding.what, finding.remedy) == ("gpu0-nvlinks", Remedy.RESET_GPU)
    assert "17 of 18 NVLinks are up" in finding.evidence[0]
    assert troubles(watched(lambda t: [gpu(0, NVLINKS_ACTIVE=18 - (t > 28))], 30)) == []
    none = watched(lambda _: [gpu(0, NVLINKS_ACTIVE=0, NVLINKS_EXPECTED=0)], 30)
    assert troubles(none) == []


@pytest.mark.parametrize(("state", "is_told"), [(0, False), (1, True), (2, True), (3, False)])
def test_a_fabric_that_is_not_joined_after_a_minute_is_told(state: int, is_told: bool) -> None:
    assert troubles(watched(lambda _: [gpu(0, FABRIC_STATE=state)], 30)) == []
    scene = watched(lambda _: [gpu(0, FABRIC_STATE=state)], 90)
    assert bool(troubles(scene)) is is_told


def test_a_degraded_fabric_is_told() -> None:
    scene = watched(lambda _: [gpu(0, FABRIC_DEGRADED=1)], 0)
    assert troubles(scene) == [("gpu_link_degraded", "gpu0-fabric-degraded")]
